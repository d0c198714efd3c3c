"""The study of the changed game: its tables by hand, and the whole study in miniature."""

import json

import numpy as np
import pytest

import launch
from configs.commands import ReproduceConfig
from configs.errors import CheckpointError, ConfigError
from studies.reproduce.changed_game import study
from studies.reproduce.changed_game.summary import summarise
from studies.reproduce.run_store import RunStore

SHORT = {
    "games": {"space_invaders": {"mode": 1, "difficulty": 1}},
    "streams": 2,
    "restart_steps": 4,
    "learning_steps": 60,
    "calibration_steps": 20,
    "held_out_steps": 20,
    "watching_steps": 6,
    "updates": 10,
    "n_step": 5,
}
DETECTORS = [
    "retrospective",
    "retrospective, reward",
    "retrospective, steps",
    "retrospective, rank",
    "forward TD error",
    "z-score, features",
    "z-score, returns",
    "HalfSpaceTrees",
]


def a_run(delays, control, new_game=None, rate=0.01):
    """What a run finds, with one detector."""

    def of(found, means):
        return {"pace": [0.5, 4.0], "watched": {"watcher": {"delays": found, "means": means}}}

    changes = {
        "nothing": of(control, [0.0, 1.0]),
        "new game": of(new_game or control, [0.0, 1.0]),
        "mode": of(delays, [2.0, 3.0]),
        "masked": of(delays, [2.0, 3.0]),
    }
    return {"rates": {"watcher": rate}, "normal": [0.5, 4.0], "changes": changes, "seconds": 1.0}


def test_rows_by_hand():
    """Noticed in 3 of 4 streams, against 1 of 4 without a change and 2 of 4 after a new game, with which a mode begins."""
    runs = [a_run([3, 9], [None, 5], [4, None]), a_run([6, None], [None, None], [4, None], rate=0.03)]
    rows = {row["change"]: row for row in study.change_rows("pong", runs)}
    masked = rows["masked"]
    assert (masked["noticed"], masked["beyond_control"], masked["median_delay"]) == (0.75, 0.5, 6.0)
    assert masked["interval"] == [0.5, 0.5]
    assert masked["auc"] == 1.0
    assert rows["mode"]["beyond_control"] == 0.25
    assert rows["mode"]["interval"] == [0.0, 0.5]
    assert (rows["nothing"]["beyond_control"], rows["nothing"]["auc"]) == (0.0, 0.5)
    assert (masked["reward_a_step"], masked["lives_lost_in_1000_steps"]) == (0.5, 4.0)
    (rate,) = study.rate_rows("pong", runs)
    assert rate == {"game": "pong", "detector": "watcher", "rate": 0.02, "interval": [0.01, 0.03]}


def test_the_summary_says_what_is_noticed_by_whom():
    runs = [a_run([3, 9], [None, 5], [4, None]), a_run([6, None], [None, None], [4, None])]
    rows, rates = study.change_rows("pong", runs), study.rate_rows("pong", runs)
    text = summarise(rows, rates, 2, study.SETTINGS)
    assert "| masked | 75%* (6) | 0.50 | 4.0 |" in text
    assert "| mode | 75% (6) |" in text
    assert "watcher notices 1 of 2 changes: masked (75% against 25%)." in text
    assert "| change | watcher |\n| --- | --- |\n| mode | 1.00 |\n| masked | 1.00 |\n" in text
    assert "Noticed by none: mode. Only by the watcher detector: masked." in text


def test_each_change_changes_one_thing():
    changes = study.make_changes("gopher", study.SETTINGS)
    assert len(set(changes.values())) == len(changes) == 10
    for name, change in changes.items():
        differing = [key for key, value in vars(change).items() if value != getattr(study.NORMAL, key)]
        assert len(differing) == (name != "nothing")
    assert [name for name in changes if study.control_of(name) == "new game"] == ["mode"]


@pytest.mark.parametrize(
    ("games", "error", "complaint"),
    [
        ({"gopher": {"mode": 0, "difficulty": 1}}, ConfigError, "gopher has no other mode 0; it has 2"),
        ({"gopher": {"mode": 2, "difficulty": 3}}, ConfigError, "gopher has no other difficulty 3; it has 1"),
        ({"pong": {"mode": 1, "difficulty": 1}}, CheckpointError, "no agent of the game 'pong'"),
    ],
)
def test_games_that_cannot_be_changed_so_are_refused(games, error, complaint):
    with pytest.raises(error, match=complaint):
        study.check_settings(study.SETTINGS | {"games": games})


def test_the_study_writes_its_results_and_a_rerun_continues(tmp_path, monkeypatch, never):
    for name, value in SHORT.items():
        monkeypatch.setitem(study.SETTINGS, name, value)
    # Workers of Ray would not see the short settings sooner.
    monkeypatch.setattr(study.Experiment, "_make", made_here)
    summary = study.reproduce_changed_game(ReproduceConfig(out=str(tmp_path), runs=2), never)
    assert (tmp_path / "summary.md").read_text() == summary
    assert "## space_invaders" in summary
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((tmp_path / "data.json").read_text())
    assert [row["detector"] for row in data["false_alarms"]] == DETECTORS
    assert len(data["changes"]) == 10 * len(DETECTORS)
    kept = RunStore(tmp_path).read()
    assert study.reproduce_changed_game(ReproduceConfig(out=str(tmp_path), runs=2), never) == summary
    assert RunStore(tmp_path).read() == kept
    (again,) = study.run_games(study.SETTINGS | {"seed": 0}, [1])
    assert again["rates"] == pytest.approx(kept[1]["rates"])
    for name, found in again["changes"].items():
        assert found["pace"] == kept[1]["changes"][name]["pace"]
        for detector in DETECTORS:
            means = kept[1]["changes"][name]["watched"][detector]["means"]
            assert np.allclose(found["watched"][detector]["means"], means, rtol=1e-3)


def made_here(self, chunks, work, stop, arguments):
    for numbers in chunks:
        yield from zip(numbers, work(self.settings, numbers, *arguments), strict=True)


def test_without_river_the_command_says_what_to_install(tmp_path, monkeypatch, capsys, signals):
    monkeypatch.setattr("studies.reproduce.experiment.find_spec", lambda name: None if name == "river" else object())
    assert launch.main(["reproduce", "changed_game", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "launch.py: reproduce changed_game needs river: pip install 'hindcast[streams]'\n"
    assert not (tmp_path / "out").exists()
