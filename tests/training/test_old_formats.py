"""What earlier versions wrote is still read, evaluated, resumed and continued; what newer ones write is refused in one line.

tests/old_formats was made by the version before format 2: a run saved in the middle of the meta-gradient's window, a sweep with
one of its two trials finished, and the archive of that sweep. Its format_2 was made by the version before format 3, which had
the settings of all tasks in one table: the config of such a run, and a sweep with three of its four trials finished.
"""

import json
import shutil
from pathlib import Path

import pytest

import launch
from configs.errors import CheckpointError, ConfigError, RunError
from configs.migration import FORMAT, RENAMED, migrate, recorded_sweep
from configs.tasks import DiscoveryConfig, QuestionConfig
from configs.train import TrainConfig, facts_of
from studies.compare.archive import read_archive
from studies.report.records import collect
from studies.reproduce.experiment import Experiment
from training.storage.checkpoint import read_checkpoint
from training.storage.run_directory import RunDirectory

OLD = Path(__file__).parents[1] / "old_formats"
SWEEP = [
    "--games",
    "catch",
    "--tasks",
    "none",
    "--seeds",
    "2",
    "--frames",
    "400",
    "--torso",
    "shallow",
    "--unroll",
    "5",
    "--batch-size",
    "4",
    "--lstm-size",
    "4",
    "--vtrace-lambda",
    "0.9",
    "--eval-episodes",
    "1",
    "--log-frames",
    "100",
]


@pytest.fixture
def old(tmp_path, signals):
    shutil.copytree(OLD, tmp_path / "old")
    return tmp_path / "old"


def test_the_settings_that_were_renamed_are_read():
    config = RunDirectory(OLD / "run").read_config()
    assert (config.agent.lstm_size, config.learner.vtrace_lambda) == (4, 0.9)
    assert (config.auxiliary.normalise_cumulants, config.auxiliary.scale_cumulants) == (True, True)


def test_every_new_name_is_a_setting_and_no_old_one_is():
    known = facts_of(TrainConfig(task="gvf")).keys()
    assert set(RENAMED.values()) <= known
    assert not set(RENAMED) & known
    with pytest.raises(ConfigError, match="unknown settings: 'core_size'"):
        TrainConfig.from_dict({"agent": {"core_size": 4}})


def test_an_old_run_is_resumed_from_the_middle_of_its_window(old):
    assert launch.main(["train", "--resume", "--run-dir", str(old / "run"), "--frames", "600"]) == 0
    assert json.loads((old / "run/result.json").read_text())["frames"] == 600
    record = json.loads((old / "run/config.json").read_text())
    assert record["format"] == FORMAT
    assert record["config"]["agent"]["lstm_size"] == 4
    assert record["resumed"][0]["frame"] == 440


def test_an_old_run_is_evaluated(old, capsys):
    assert launch.main(["evaluate", "--run-dir", str(old / "run"), "--episodes", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 1


@pytest.mark.parametrize("name", ["run", "sweep", "archive"])
def test_old_directories_are_reported(old, capsys, name):
    assert launch.main(["report", str(old / name)]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--out", "sweep"], ["--out", "new", "--archive", "archive"]], ids=["sweep", "archive"])
def test_an_old_sweep_is_continued(old, capsys, flags):
    paths = [part if part.startswith("--") else str(old / part) for part in flags]
    finished = (old / "sweep/catch-none-seed1/result.json").read_bytes()
    assert launch.main(["compare", *SWEEP, *paths, "--dry-run"]) == 0
    assert "400 frames" in capsys.readouterr().out  # Of one trial: the other is finished.
    assert launch.main(["compare", *SWEEP, *paths]) == 0
    out = Path(paths[1])
    assert json.loads((out / "catch-none-seed2/result.json").read_text())["frames"] == 400
    assert (old / "sweep/catch-none-seed1/result.json").read_bytes() == finished


FORMAT_2 = ["--games", "catch", "--tasks", "none", "random_gvf", "pixel_control", "--seeds", "1", "--frames", "400"]
FORMAT_2 += ["--torso", "shallow", "--unroll", "5", "--batch-size", "4", "--num-questions", "4", "--stop-main-gradient"]
FORMAT_2 += ["--vary", "random_gvf.answer_weight=0.1,0.3", "--eval-episodes", "1", "--log-frames", "100"]


def test_the_settings_of_a_task_are_read_from_the_table_of_all_tasks():
    config = RunDirectory(OLD / "format_2/run").read_config()
    assert config.auxiliary == DiscoveryConfig(
        num_questions=4, meta_interval=4, answer_weight=0.2, meta_learning_rate=1e-4, meta_clip_norm=0.0
    )
    assert config.learner.stop_main_gradient
    random = RunDirectory(OLD / "format_2/sweep/catch-random_gvf-answer_weight=0.1-seed1").read_config()
    assert random.auxiliary == QuestionConfig(num_questions=4)
    assert TrainConfig.from_dict(random.to_dict()) == random


def test_a_setting_that_no_task_had_is_refused(old):
    path = old / "format_2/run/config.json"
    record = json.loads(path.read_text())
    record["config"]["auxiliary"]["surprise"] = 1
    path.write_text(json.dumps(record))
    with pytest.raises(RunError, match="unknown settings: 'surprise'"):
        RunDirectory(old / "format_2/run").read_config()


def test_a_run_of_format_2_is_resumed(old):
    """The checkpoint is that of the older run, which had the same network."""
    shutil.copy(old / "format_2/run/config.json", old / "run/config.json")
    assert launch.main(["train", "--resume", "--run-dir", str(old / "run"), "--frames", "500"]) == 0
    record = json.loads((old / "run/config.json").read_text())
    assert (record["format"], record["config"]["auxiliary"]["answer_weight"]) == (FORMAT, 0.2)
    assert "pixel_control_weight" not in record["config"]["auxiliary"]


@pytest.mark.parametrize("flags", [["--out", "sweep"], ["--out", "new", "--archive", "archive"]], ids=["sweep", "archive"])
def test_a_sweep_of_format_2_is_continued_and_reported(old, capsys, flags):
    paths = [part if part.startswith("--") else str(old / "format_2" / part) for part in flags]
    assert launch.main(["compare", *FORMAT_2, *paths, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "nothing is left to do" in shown if "--archive" in flags else "of these 3 are finished" in shown
    refused = ["compare", *FORMAT_2, *paths, "--dry-run", "--num-questions", "5"]
    assert launch.main(refused) == 2
    assert "holds another sweep (--num-questions 4, not 5)" in capsys.readouterr().err
    assert launch.main(["report", paths[-1]]) == 0
    agents = json.loads((Path(paths[-1]) / "report.json").read_text())["agents"]
    assert [agent["task"] for agent in agents] == ["none", "pixel_control"] + ["random_gvf"] * (1 + ("--archive" in flags))


def test_old_settings_of_a_study_are_its_own(tmp_path):
    recorded = {"common": {"standard_cumulants": False}, "cells": [{"changes": {"trace_lambda": 1.0}}]}
    (tmp_path / "settings.json").write_text(json.dumps({"settings": recorded}))
    settings = {"common": {"normalise_cumulants": False}, "cells": [{"changes": {"vtrace_lambda": 1.0}}]}
    Experiment(tmp_path, settings)
    assert migrate(settings, FORMAT) is settings


def newer(path):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"format": FORMAT + 1}))


def test_newer_formats_are_refused(old):
    newer(old / "run/config.json")
    newer(old / "archive/catch-none-seed1.trial.json")
    newer(old / "sweep/grid.json")
    message = f"has format {FORMAT + 1}, which a newer version wrote; this one reads formats up to {FORMAT}"
    with pytest.raises(RunError, match=message):
        RunDirectory(old / "run").read_config()
    with pytest.raises(RunError, match=message):
        read_archive(old / "archive/catch-none-seed1.trial.json")
    assert launch.main(["compare", *SWEEP, "--out", str(old / "sweep"), "--dry-run"]) == 2
    assert any(message in problem for problem in collect([old / "sweep"]).problems)
    checkpoint = next((old / "run/checkpoints").iterdir())
    data = checkpoint.read_bytes()
    checkpoint.write_bytes(data.replace(b"hindcast-checkpoint-2", b"hindcast-checkpoint-7"))
    with pytest.raises(CheckpointError, match="has format 7, which a newer version wrote"):
        read_checkpoint(checkpoint)


@pytest.mark.parametrize("value", [0, -1, "2", None, True, 1.5])
def test_formats_that_are_none_are_refused(old, value):
    path = old / "run/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": value}))
    with pytest.raises(RunError, match="its format cannot be"):
        RunDirectory(old / "run").read_config()


def test_a_sweep_recorded_before_there_was_a_clip_has_none():
    tables = {"none": {}, "reverse_gvf": {"meta_interval": 5}, "gvf": {"meta_interval": 5, "meta_clip_norm": 2.0}}
    assert recorded_sweep({"tasks": list(tables), "auxiliary": tables}, 3)["auxiliary"] == {
        "none": {},
        "reverse_gvf": {"meta_interval": 5, "meta_clip_norm": 0.0},
        "gvf": {"meta_interval": 5, "meta_clip_norm": 2.0},
    }
