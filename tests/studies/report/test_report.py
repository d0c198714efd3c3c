"""Reports of sweeps with known scores: their numbers, their text, and their robustness against damaged files."""

import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from configs.commands import ReportConfig
from configs.errors import ConfigError, RunError
from configs.train import LearnerConfig
from studies.report.records import collect
from studies.report.report import make_report
from tests.helpers.trial_files import FRAMES, make_sweep, write_trial
from training.storage.metrics_file import read_metrics

SCORES = {("pong", "none"): [-20.0, -18.0, -16.0], ("pong", "reverse_gvf"): [-10.0, -9.0, -8.0],
          ("catch", "none"): [-0.5, 0.5, 0.0], ("catch", "reverse_gvf"): [1.0, 0.5, 1.0]}  # fmt: skip


def finished_sweep(directory):
    """Two games, two tasks, three seeds, all finished."""
    sweep = make_sweep(directory / "sweep", games=("pong", "catch"), seeds=3)
    for trial in sweep.trials:
        config = trial.config
        write_trial(trial, SCORES[config.env.game, config.task][config.run.seed - 1])
    return sweep


@pytest.fixture
def sweep(tmp_path):
    return finished_sweep(tmp_path)


def report(*directories, **settings):
    """The page and the numbers."""
    path = make_report(ReportConfig(directories=tuple(map(str, directories)), **settings)).page
    return path.read_text(), json.loads(path.with_name("report.json").read_text())


def files(directory):
    return {path.name: path.read_bytes() for path in directory.glob("report*")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The same sweep and its report, made once for the tests that only look at it."""
    sweep = finished_sweep(tmp_path_factory.mktemp("finished"))
    page, numbers = report(sweep.out)
    return sweep, page, numbers


class Page(HTMLParser):
    """Collects tags and references."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.references += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action", "style")]


def test_numbers_by_hand(finished):
    _, page, numbers = finished
    scores = {(cell["game"], cell["task"]): cell for cell in numbers["scores"]}
    assert scores["pong", "none"]["score"]["value"] == -18
    assert scores["pong", "none"]["finished"] == 3
    assert scores["catch", "reverse_gvf"]["score"]["value"] == pytest.approx(2.5 / 3)
    assert scores["pong", "none"]["minutes"] == 1
    # The curve rises from 0.1 at frame 100 to 1 at frame 1000 and is level before: 10 points of 0.1, then 11 to 100 hundredths.
    assert scores["pong", "none"]["area"]["value"] == pytest.approx((10 * 0.1 + sum(range(11, 101)) / 100) / 100)
    (pair,) = numbers["comparisons"]
    assert pair["other"] == "none"
    assert pair["improvements"]["pong"]["estimate"]["value"] == pytest.approx(0.5)
    assert pair["improvements"]["catch"] == {"estimate": None, "remark": "the baseline's mean is 0"}
    assert pair["final_score"]["games"]["pong"]["kind"] == "too few"
    # Pong: all nine pairs. Catch: 1 beats all, 0.5 beats two and ties one: (3 + 2.5 + 3)/9.
    assert pair["final_score"]["overall"]["estimate"]["value"] == pytest.approx((1 + 8.5 / 9) / 2)
    human = numbers["human_normalised"]
    assert human["games"] == ["pong"]
    assert human["interquartile_mean"]["none"]["value"] == pytest.approx((-18 + 20.7) / 35.3)
    assert "12 of 12 trials are finished." in page
    assert "undefined" not in page  # Only the figure says so.


def test_csv_files_hold_trials_scores_and_curves(finished):
    sweep, _, _ = finished
    trials = list(csv.DictReader((sweep.out / "report_trials.csv").open()))
    assert len(trials) == 12
    assert trials[0] == {
        "trial": "catch-none-seed1", "game": "catch", "task": "none", "agent": "none", "seed": "1", "protocol": "",
        "state": "finished", "frames": "1000", "of_frames": "1000", "score": "-0.5", "evaluated_games": "30",
        "human_normalised": "", "area_under_curve": trials[0]["area_under_curve"], "wall_seconds": "60.0",
        "frames_per_second": "100.0",
    }  # fmt: skip
    assert len(list(csv.DictReader((sweep.out / "report_scores.csv").open()))) == 4
    assert len(list(csv.DictReader((sweep.out / "report_curves.csv").open()))) == 12 * 10
    for name in ("curves", "relative_area", "improvement", "probability", "human_normalised", "profiles"):
        assert (sweep.out / f"report_{name}.png").read_bytes().startswith(b"\x89PNG"), name


def test_the_same_data_gives_the_same_bytes(finished, tmp_path):
    sweep, _, _ = finished
    first = files(sweep.out)
    assert len(first) == 11
    report(sweep.out, out=str(tmp_path / "elsewhere"))
    assert files(tmp_path / "elsewhere") == first


def test_the_page_has_no_external_references(finished):
    _, text, _ = finished
    page = Page(text)
    assert page.references
    assert all(reference.startswith("data:image/png;base64,") for reference in page.references)
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))


def test_text_from_files_is_escaped(sweep):
    attack = "<script>alert(1)</script>"
    sweep.write_failures({attack: attack})
    trial = sweep.trials[0]
    record = json.loads((trial.path / "config.json").read_text())
    record["commit"], record["config"]["env"]["game"] = attack, f"$\\frac{attack}"
    (trial.path / "config.json").write_text(json.dumps(record))
    page, _ = report(sweep.out)
    assert "script" not in Page(page).tags
    assert "&lt;script&gt;alert(1)" in page


def test_a_partial_sweep(sweep):
    missing, unfinished, damaged = [trial for trial in sweep.trials if trial.config.env.game == "catch"][:3]
    for path in sorted(missing.path.rglob("*"), reverse=True):
        path.unlink()
    missing.path.rmdir()
    unfinished.directory.result_path.unlink()
    damaged.directory.config_path.write_text("{")
    sweep.write_failures({missing.name: "ArithmeticError: broken"})
    page, numbers = report(sweep.out)
    assert "9 of 12 trials are finished: the sweep is not complete" in page
    assert numbers["not_begun"] == [missing.name]
    assert numbers["failed"] == {missing.name: "ArithmeticError: broken"}
    assert f"{unfinished.name}: 1,000 of 1,000 frames" in page
    assert any(problem.startswith(f"{damaged.name}: config.json is damaged") for problem in numbers["problems"])
    cells = {(cell["game"], cell["task"]): cell["finished"] for cell in numbers["scores"]}
    assert cells == {("catch", "none"): 1, ("catch", "reverse_gvf"): 2, ("pong", "none"): 3, ("pong", "reverse_gvf"): 3}


def test_a_sweep_without_finished_trials(tmp_path):
    sweep = make_sweep(tmp_path / "g")
    write_trial(sweep.trials[0], None, until=300)
    write_trial(sweep.trials[1], None, until=0)
    page, numbers = report(sweep.out)
    assert "0 of 4 trials are finished" in page
    assert "no finished trials to compare" in page
    assert numbers["comparisons"][0]["final_score"]["games"]["catch"]["kind"] == "too few"


def test_partial_damage_is_reported(sweep):
    first, second, third = sweep.trials[:3]
    with (first.path / "metrics.jsonl").open("a") as file:
        file.write('nonsense\n{"frame": 50}\n{"frame": "x"}\n[1]\n{"frame": 1100, "charts/episode_return": NaN}\n{"fra')
    second.directory.result_path.write_text("{")
    third.directory.result_path.write_text('{"evaluation": {"mean": "high"}}')
    _, numbers = report(sweep.out)
    assert f"{first.name}: 4 lines of metrics.jsonl are damaged and left out" in numbers["problems"]
    assert any(problem.startswith(f"{second.name}: result.json is damaged") for problem in numbers["problems"])
    assert f"{third.name}: result.json holds no score; it counts as unfinished" in numbers["problems"]
    rows = {row["trial"]: row for row in numbers["trials"]}
    assert rows[first.name]["frames"] == 1100
    assert rows[second.name]["state"] == rows[third.name]["state"] == "unfinished"


def test_endless_lines_are_not_read_into_memory(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"frame": 1}\n' + b"x" * (3 << 20))
    assert read_metrics(path) == ([{"frame": 1}], 1)


def test_nothing_to_report(tmp_path):
    with pytest.raises(RunError, match="is not a directory"):
        report(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"empty holds no trial that can be read$"):
        report(tmp_path / "empty")
    (tmp_path / "broken" / "trial").mkdir(parents=True)
    (tmp_path / "broken" / "trial" / "config.json").write_bytes(b"\xff\xfe")
    (tmp_path / "broken" / "sweep.json").write_text("[]")
    with pytest.raises(RunError, match=r"holds no trial that can be read: broken: sweep.json is damaged"):
        report(tmp_path / "broken")
    assert not list((tmp_path / "broken").glob("report*"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "[" * 100_000),
        ("config.json", '{"config": {"run": {"frames": 1' + "0" * 400 + "}}}"),
        ("config.json", '{"config": {"run": {"frames": 1' + "0" * 40 + "}}}"),
        ("result.json", '{"evaluation": {"mean": 1' + "0" * 400 + "}}"),
        ("result.json", '{"evaluation": 7, "training_return": Infinity}'),
        ("metrics.jsonl", '{"frame": 1' + "0" * 400 + ', "charts/episode_return": 1}\n'),
        ("metrics.jsonl", '{"frame": 100, "charts/episode_return": [1]}\n'),
        ("failures.json", "[]"),
    ],
)
def test_a_damaged_file_affects_only_its_own_trial(tmp_path, file, content):
    sweep = make_sweep(tmp_path / "g", tasks=("none",))
    for trial in sweep.trials:
        write_trial(trial, 1.0)
    directory = sweep.out if file == "failures.json" else sweep.trials[0].path
    (directory / file).write_text(content)
    _, numbers = report(sweep.out)
    assert numbers["trials"][-1]["score"] == 1
    assert numbers["problems"] or content.endswith("[1]}\n")


def test_several_directories_and_a_single_run(tmp_path):
    one, two = make_sweep(tmp_path / "one", seeds=2), make_sweep(tmp_path / "two", seeds=2, first_seed=2)
    for trial in (*one.trials, *two.trials):
        write_trial(trial, float(trial.config.run.seed))
    _, numbers = report(one.out, two.out)
    assert [cell["finished"] for cell in numbers["scores"]] == [3, 3]
    assert sum("left out, duplicate of another trial" in problem for problem in numbers["problems"]) == 2
    assert len(numbers["commands"]) == 2
    _, numbers = report(one.trials[0].path, out=str(tmp_path / "single"))
    assert [trial["trial"] for trial in numbers["trials"]] == ["catch-none-seed1"]


def test_confounded_comparisons_are_named(tmp_path):
    one = make_sweep(tmp_path / "one", tasks=("none",))
    two = make_sweep(tmp_path / "two", tasks=("gvf",), learner=LearnerConfig(learning_rate=0.5))
    for trial in (*one.trials, *two.trials):
        write_trial(trial, 1.0)
    _, numbers = report(one.out, two.out)
    problem = "catch: trials differ in --learning-rate (none 6e-4, gvf 0.5); comparisons of these tasks are confounded"
    assert numbers["problems"] == [problem]
    assert numbers["task"] == "gvf"


def test_areas_relative_to_the_plain_agent(tmp_path):
    """Twice, half and three times the plain agent's curve; the game with negative returns is left out."""
    heights = {("catch", "none"): (1, 1), ("catch", "gvf"): (2, 2), ("catch", "reverse_gvf"): (0.5, 0.5),
               ("breakout", "none"): (1, 3), ("breakout", "gvf"): (2, 2), ("breakout", "reverse_gvf"): (6, 6)}  # fmt: skip
    sweep = make_sweep(tmp_path / "sweep", games=("breakout", "catch", "pong"), tasks=("none", "gvf", "reverse_gvf"))
    for trial in sweep.trials:
        height = heights.get((trial.config.env.game, trial.config.task), (-1, -1))[trial.config.run.seed - 1]
        write_trial(trial, 1.0, returns=lambda frame, height=height: height * frame / FRAMES)
    page, numbers = report(sweep.out)
    found = numbers["relative_area"]
    assert (found["baseline"], found["games"]) == ("none", ["breakout", "catch"])
    assert found["by_game"]["gvf"]["catch"] == {"value": 2, "low": 2, "high": 2}
    assert found["by_game"]["gvf"]["breakout"]["value"] == 1
    assert found["by_game"]["gvf"]["breakout"]["low"] == pytest.approx(2 / 3)
    assert found["by_game"]["reverse_gvf"]["breakout"]["value"] == 3
    assert {agent: value["value"] for agent, value in found["overall"].items()} == {"gvf": 1.5, "reverse_gvf": 1.75}
    assert "Area relative to none" in page
    assert "of 0 or below: pong" in page


def test_areas_are_not_averaged_over_protocols(tmp_path):
    sweeps = [make_sweep(tmp_path / protocol, games=("breakout",), protocol=protocol) for protocol in ("impala", "machado")]
    for sweep in sweeps:
        for trial in sweep.trials:
            write_trial(trial, 1.0)
    page, numbers = report(*(sweep.out for sweep in sweeps))
    assert len(numbers["relative_area"]["games"]) == 2
    assert numbers["relative_area"]["overall"] == {}
    assert "Not averaged over games: they were played under different protocols." in page


def test_a_result_of_a_shorter_run_does_not_finish_a_longer_one(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", seeds=1)
    for trial in sweep.trials:
        write_trial(trial, 1.0)
    path = sweep.trials[0].directory.result_path
    path.write_text(json.dumps(json.loads(path.read_text()) | {"frames": FRAMES - 1}))
    records = collect([sweep.out])
    assert [trial.finished for trial in records.trials] == [False, True]
    assert records.problems == [f"{sweep.trials[0].name}: its result is not of its last frame; it counts as unfinished"]


def test_the_task_of_a_report_can_be_chosen(sweep):
    _, numbers = report(sweep.out, task="none")
    assert numbers["task"] == "none"
    assert [pair["other"] for pair in numbers["comparisons"]] == ["reverse_gvf"]
    with pytest.raises(ConfigError, match="--task gvf has no trial here"):
        report(sweep.out, task="gvf")


def test_a_report_without_the_plain_agent_has_no_relative_areas(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", tasks=("gvf", "reverse_gvf"))
    for trial in sweep.trials:
        write_trial(trial, 1.0)
    page, numbers = report(sweep.out)
    assert numbers["relative_area"] == {"baseline": "", "games": [], "by_game": {}, "overall": {}}
    assert "Area relative" not in page


def test_a_report_of_one_task(tmp_path):
    sweep = make_sweep(tmp_path / "g", tasks=("none",), seeds=1)
    write_trial(sweep.trials[0], 1.0)
    page, _ = report(sweep.out)
    assert "There is only one task, none: nothing to compare." in page


def test_curves_are_interpolated_linearly(finished):
    sweep, _, _ = finished
    trial = next(trial for trial in collect([sweep.out]).trials)
    assert trial.returns_at(np.array([0.0, 100.0, 150.0, 950.0, 2000.0])) == pytest.approx([0.1, 0.1, 0.15, 0.95, 1.0])
    assert trial.frames == FRAMES
