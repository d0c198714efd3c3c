"""The directory of a sweep: its identity, the status of its trials."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from configs.compare import COMPARE_PRESETS, CompareConfig
from configs.errors import CheckpointError, ConfigError, GameError, RunError
from configs.train import PRESETS, LearnerConfig
from envs.atari import published_scores
from envs.game_sets import GAME_SETS, expand_games
from studies.compare import progress as sweep_progress
from studies.compare.progress import Follower, SweepProgress, clock
from studies.compare.sweep import Sweep, TrialStatus, read_json
from tests.helpers.trial_files import FRAMES, make_sweep, write_trial
from training.loop import train
from training.storage.run_lock import InUseError, locked


def test_sets_of_games():
    assert len(GAME_SETS["atari5"]) == 5
    assert len(GAME_SETS["atari10"]) == 10
    assert len(GAME_SETS["atari57"]) == len(published_scores()) == 57
    assert set(GAME_SETS["atari5"]) < set(GAME_SETS["atari10"]) < set(GAME_SETS["atari57"])
    assert expand_games(["qbert", "atari5", "catch"]) == ("qbert", *GAME_SETS["atari5"][:-1], "catch")
    with pytest.raises(GameError, match="unknown game 'atari7'"):
        expand_games(["atari7"])


def test_the_papers_sweep():
    paper = Sweep(CompareConfig(**vars(COMPARE_PRESETS["paper"]) | {"out": "x"}))
    assert len(paper.trials) == 10 * 5 * 3
    config = paper.trials[0].config
    assert config.run.frames == 200_000_000
    assert config.agent == PRESETS["paper"].agent
    assert config.learner == replace(PRESETS["paper"].learner, learners=1)


def test_seeds_vary_slowest(tmp_path):
    sweep = make_sweep(tmp_path / "g", games=("catch", "puddleworld"), seeds=2, first_seed=4)
    assert [trial.name for trial in sweep.trials] == [
        "catch-none-seed4", "catch-reverse_gvf-seed4", "puddleworld-none-seed4", "puddleworld-reverse_gvf-seed4",
        "catch-none-seed5", "catch-reverse_gvf-seed5", "puddleworld-none-seed5", "puddleworld-reverse_gvf-seed5",
    ]  # fmt: skip
    assert sweep.trials[3].path == tmp_path / "g" / "puddleworld-reverse_gvf-seed4"


VARY = ("reverse_gvf.answer_weight=0.1,0.3", "learning_rate=3e-4,6e-4")


def test_settings_are_a_dimension_of_a_sweep(tmp_path):
    sweep = make_sweep(tmp_path / "g", seeds=1, vary=VARY)
    assert [trial.name for trial in sweep.trials] == [
        "catch-none-learning_rate=3e-4-seed1",
        "catch-none-learning_rate=6e-4-seed1",
        "catch-reverse_gvf-answer_weight=0.1-learning_rate=3e-4-seed1",
        "catch-reverse_gvf-answer_weight=0.1-learning_rate=6e-4-seed1",
        "catch-reverse_gvf-answer_weight=0.3-learning_rate=3e-4-seed1",
        "catch-reverse_gvf-answer_weight=0.3-learning_rate=6e-4-seed1",
    ]
    last = sweep.trials[-1]
    assert (last.config.auxiliary.answer_weight, last.config.learner.learning_rate) == (0.3, 6e-4)
    assert last.path == tmp_path / "g" / last.name
    assert sweep.agents[0] == "none-learning_rate=3e-4"
    record = read_json(sweep.out / "sweep.json")
    assert record["sweep"]["vary"] == list(VARY)
    assert record["trials"] == [trial.name for trial in sweep.trials]
    assert set(sweep.statuses().values()) == {TrialStatus.NEW}


def test_a_sweep_with_other_varied_values_is_refused(tmp_path):
    sweep = make_sweep(tmp_path / "g", vary=("learning_rate=3e-4,6e-4",))
    for vary, shown in {
        ("learning_rate=3e-4,7e-4",): "--vary learning_rate=3e-4,6e-4, not learning_rate=3e-4,7e-4",
        (): "--vary learning_rate=3e-4,6e-4, not nothing",
    }.items():
        with pytest.raises(RunError, match=f"holds another sweep .{shown}"):
            Sweep(replace(sweep.config, vary=vary)).statuses()
    Sweep(replace(sweep.config, vary=("learning-rate=0.0003,0.0006",))).statuses()


def test_names_too_long_for_a_directory_are_refused(tmp_path):
    names = (
        "learning_rate",
        "rmsprop_eps",
        "rmsprop_initial_moment",
        "clip_norm",
        "value_cost",
        "entropy_cost",
        "warm_up_updates",
    )
    vary = tuple(f"{name}={10**15 if name == 'warm_up_updates' else 0.12345678901234567}" for name in names)
    with pytest.raises(ConfigError, match="vary fewer settings"):
        Sweep(CompareConfig(games=("catch",), tasks=("none",), frames=FRAMES, out=str(tmp_path / "g"), vary=vary))


def test_the_status_of_a_trial(tmp_path, never):
    sweep = make_sweep(tmp_path / "g", seeds=2)
    finished, begun, interrupted, new = sweep.trials
    write_trial(finished, score=1.0)
    write_trial(begun, score=None)
    train(interrupted.config, never)
    interrupted.directory.result_path.unlink()
    new.path.mkdir()
    (new.path / ".config.json.12.tmp").touch()  # Broken off while it wrote its first file.
    assert list(sweep.statuses().values()) == [
        TrialStatus.FINISHED,
        TrialStatus.BEGUN,
        TrialStatus.INTERRUPTED,
        TrialStatus.NEW,
    ]
    begun.clear()
    assert sweep.statuses()[begun.name] is TrialStatus.NEW
    interrupted.directory.write_json(interrupted.directory.result_path, {"frames": FRAMES - 1})  # Of a shorter run.
    assert sweep.statuses()[interrupted.name] is TrialStatus.INTERRUPTED


def test_a_kill_while_a_trial_is_cleared_leaves_a_trial(tmp_path, monkeypatch):
    (trial, *_) = make_sweep(tmp_path / "g", seeds=1).trials
    write_trial(trial, score=None)
    (trial.path / "aaa").touch()
    unlink = Path.unlink

    def killed(self, *arguments, **settings):
        if self.name == "config.json":
            raise KeyboardInterrupt
        unlink(self, *arguments, **settings)

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        trial.clear()
    assert trial.status() is TrialStatus.BEGUN


def test_a_file_in_the_place_of_a_trial_is_refused(tmp_path):
    sweep = make_sweep(tmp_path / "g", seeds=1)
    sweep.trials[0].path.touch()
    with pytest.raises(RunError, match="is a file, not a directory"):
        sweep.statuses()


def test_failures_that_cannot_be_written_are_one_line(tmp_path):
    sweep = make_sweep(tmp_path / "g", seeds=1)
    (sweep.out / "failures.json").mkdir()
    for failures in ({}, {"a": "b"}):
        with pytest.raises(RunError, match=r"cannot write .*failures\.json"):
            sweep.write_failures(failures)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"seeds": 3}, "--seeds 2, not 3"),
        ({"games": ("puddleworld",)}, "--games catch, not puddleworld"),
        ({"tasks": ("none",)}, "--tasks none reverse_gvf, not none"),
        ({"eval_episodes": 7}, "--eval-episodes 30, not 7"),
        ({"protocol": "machado"}, "--protocol impala, not machado"),
        ({"cores_per_trial": 2}, "--pool serial, not ray"),
    ],
)
def test_another_sweep_is_refused(tmp_path, change, difference):
    sweep = make_sweep(tmp_path / "g")
    with pytest.raises(RunError, match="holds another sweep") as error:
        Sweep(replace(sweep.config, **change)).statuses()
    assert difference in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"attempts": 9, "checkpoint_minutes": 1, "ray_address": "somewhere:1"},
        {"auxiliary": {"meta_memory_gb": 1.0, "meta_cosine": True}},
        {"learner": LearnerConfig(device="cpu", learner_threads=1)},
    ],
)
def test_settings_of_execution_may_change(tmp_path, change):
    sweep = make_sweep(tmp_path / "g")
    assert set(Sweep(replace(sweep.config, **change)).statuses().values()) == {TrialStatus.NEW}


def test_recorded_settings_of_execution_are_ignored(tmp_path):
    sweep = make_sweep(tmp_path / "g")
    record = read_json(sweep.out / "sweep.json")
    record["sweep"]["auxiliary"]["reverse_gvf"]["meta_memory_gb"] = 4.0
    (sweep.out / "sweep.json").write_text(json.dumps(record))
    assert set(sweep.statuses().values()) == {TrialStatus.NEW}


def test_settings_that_were_not_recorded_have_their_defaults(tmp_path):
    sweep = make_sweep(tmp_path / "g")
    record = read_json(sweep.out / "sweep.json")
    del record["sweep"]["auxiliary"]["reverse_gvf"]["meta_period"]
    (sweep.out / "sweep.json").write_text(json.dumps(record))
    assert set(sweep.statuses().values()) == {TrialStatus.NEW}
    other = Sweep(replace(sweep.config, auxiliary={"meta_period": 40}))
    with pytest.raises(RunError, match="--meta-period 0, not 40"):
        other.statuses()


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config.json", "{", "config.json is damaged"),
        ("result.json", "{", "result.json is damaged"),
        ("result.json", "[]", "it is not a JSON object"),
        ("result.json", "{}", "it has no frames"),
        ("checkpoints/frame_000000001000.safetensors", "nonsense", "is damaged"),
    ],
)
def test_damaged_trials_are_refused_and_not_changed(tmp_path, file, content, complaint):
    sweep = make_sweep(tmp_path / "g")
    trial = sweep.trials[0]
    write_trial(trial, score=None)
    path = trial.path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises((RunError, CheckpointError), match=complaint):
        sweep.statuses()
    assert path.read_text() == content


def test_trials_of_other_settings_are_refused(tmp_path):
    sweep = make_sweep(tmp_path / "g")
    ours, other = sweep.trials[:2]
    write_trial(other, score=1.0)
    other.path.rename(ours.path)
    with pytest.raises(RunError, match="not part of this sweep: the run was started with --task reverse_gvf"):
        sweep.statuses()


def test_a_damaged_sweep_file_is_refused(tmp_path):
    sweep = make_sweep(tmp_path / "g")
    (sweep.out / "sweep.json").write_text('{"sweep": 3}')
    with pytest.raises(RunError, match="its settings cannot be read"):
        sweep.statuses()
    (sweep.out / "sweep.json").write_text("nonsense")
    with pytest.raises(RunError, match=r"sweep.json is damaged"):
        sweep.statuses()


def test_two_processes_do_not_run_one_sweep(tmp_path):
    sweep = make_sweep(tmp_path / "g")
    with locked(sweep.out), pytest.raises(InUseError), sweep.claimed("again"):
        pytest.fail("claimed twice")
    with sweep.claimed("again"):
        pass
    assert read_json(sweep.out / "sweep.json")["command"] == "launch.py compare --games catch"


def test_failures_are_recorded_until_there_are_none(tmp_path):
    sweep = make_sweep(tmp_path / "g")
    sweep.write_failures({"b": "2", "a": "1"})
    assert json.loads((sweep.out / "failures.json").read_text()) == {"a": "1", "b": "2"}
    sweep.write_failures({})
    assert not (sweep.out / "failures.json").exists()


def test_invalid_sweeps_are_refused():
    for change, complaint in [
        ({"seeds": 0}, "--seeds must be positive, not 0"),
        ({"first_seed": -1}, "--first-seed"),
        ({"attempts": 0}, "--attempts"),
        ({"cores_per_trial": 0}, "--cores-per-trial"),
        ({"frames": 100}, "less than one batch of 160"),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            CompareConfig(**change)
    with pytest.raises(ConfigError, match="--games is missing"):
        CompareConfig(tasks=("none",), out="x").check_complete()


def test_a_follower_of_something_that_is_no_file_reads_nothing(tmp_path):
    assert list(Follower(tmp_path).new_lines()) == []


def test_a_follower_reads_each_complete_line_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    follower = Follower(path)
    assert list(follower.new_lines()) == []
    path.write_text('{"frame": 1}\n{"frame": 2}\n{"fra')
    assert [line["frame"] for line in follower.new_lines()] == [1, 2]
    path.write_text('{"frame": 1}\n{"frame": 2}\n{"frame": 3}\nnonsense\n[]\n{"frame": "x"}\n')
    assert [line["frame"] for line in follower.new_lines()] == [3]
    assert follower.last == {"frame": 3}
    path.write_text('{"frame": 1}\n')  # Cut back, as a resumed run does.
    assert [line["frame"] for line in follower.new_lines()] == [1]


def test_the_progress_table(tmp_path, capsys, monkeypatch):
    """One trial finished, one running, one failed, one waiting."""
    sweep = make_sweep(tmp_path / "g", seeds=2)
    finished, running, failed, waiting = sweep.trials
    write_trial(finished, score=1.0)
    write_trial(running, None)
    with (running.path / "metrics.jsonl").open("w") as file:
        json.dump({"frame": 400, "charts/frames_per_second": 10.0, "charts/episode_return": 0.25}, file)
        file.write("\n")
    followers = {trial.name: Follower(trial.path / "metrics.jsonl") for trial in sweep.trials}
    for follower in followers.values():
        list(follower.new_lines())
    progress = SweepProgress(sweep.trials, followers)
    statuses = ({running.name}, {finished.name}, {failed.name: "ArithmeticError: broken"})
    console = Console(width=120, file=io.StringIO())
    console.print(progress._table(*statuses))
    text = console.file.getvalue()
    assert re.search(rf"{running.name} *│ 400 / 1,000 │ +10 │ +0.25 │ 0:01:00", text)
    assert re.search(rf"{failed.name} *│ +failed", text)
    assert waiting.name not in text
    summary = "1 of 4 trials finished, 1 running, 1 waiting; 1 failed; 10 frames/s, 0:02:40 left"
    assert summary in " ".join(text.split())
    progress.show(*statuses)
    assert capsys.readouterr().err == ""  # Five seconds have not passed.
    monkeypatch.setattr(sweep_progress.time, "monotonic", lambda: progress._start + 6)
    progress.show(*statuses)
    assert capsys.readouterr().err == summary + "\n"


def test_clock():
    assert clock(3725.4) == "1:02:05"
    assert clock(-3) == "0:00:00"
