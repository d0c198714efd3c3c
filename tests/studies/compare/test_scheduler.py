"""Sweeps that run: interrupted, killed and continued; with trials that fail; on more than one core."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import ray
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import launch
from actors.resources import available_cores
from configs.commands import ReportConfig
from configs.compare import CompareConfig
from configs.errors import NodeError, PoolError
from configs.train import AgentConfig, LearnerConfig
from studies.compare import scheduler as compare_module
from studies.compare.scheduler import compare, share_cores
from studies.compare.sweep import Sweep, TrialStatus
from studies.compare.trial_process import check_visible
from studies.report.report import make_report
from tests.helpers.dying import MARK
from tests.helpers.trial_files import FRAMES, make_sweep, write_trial
from tests.training.test_loop import assert_same_run
from training.loop import train

SMALL = {
    "agent": AgentConfig(torso="shallow"),
    "learner": LearnerConfig(unroll=5, batch_size=4),
    "auxiliary": {"num_questions": 4, "meta_interval": 4},
    "eval_episodes": 2,
    "log_frames": 200,
}


@pytest.fixture
def unmeasured(monkeypatch):
    """Leaves out the estimate, for games that cannot be played here."""
    monkeypatch.setattr(compare_module, "estimate_sweep", lambda *_: None)
    monkeypatch.setattr(compare_module, "print_estimate", lambda *_: None)


def start(out, frames):
    flags = ["--games", "catch", "--tasks", "none", "reverse_gvf", "--seeds", "1", "--frames", frames, "--out", out]
    flags += ["--torso", "shallow", "--unroll", "5", "--batch-size", "4", "--num-questions", "4", "--meta-interval", "4"]
    flags += ["--eval-episodes", "2", "--checkpoint-minutes", "0.005", "--log-frames", "200"]
    command = [sys.executable, str(Path(launch.__file__)), "compare", *map(str, flags)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(process, found, seconds=120):
    deadline = time.monotonic() + seconds
    while not found():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
def test_an_interrupted_and_killed_sweep_equals_an_uninterrupted_one(tmp_path, never, unmeasured):
    """Ctrl-C in all its processes at once, then kill -9 of the command, then the rest; against ordinary runs."""
    out, frames = tmp_path / "sweep", 4000
    process = start(out, frames)
    try:
        children = wait_for(process, lambda: list(out.glob("*/metrics.jsonl")))
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped and saved; continue with: " in output
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=10)[1]
    saved = {path.parent.parent.name for path in out.glob("*/checkpoints/frame_*")}
    assert saved == {path.parent.name for path in out.glob("*/config.json")} != set()

    before = set(out.glob("*/checkpoints/frame_*"))
    process = start(out, frames)
    children = wait_for(process, lambda: set(out.glob("*/checkpoints/frame_*")) - before)
    trials = [child for child in children if "Agent" not in child.name()]  # Ray's agents take a minute to notice.
    process.kill()
    process.communicate()
    assert not psutil.wait_procs(trials, timeout=30)[1]
    assert len(list(out.glob("*/result.json"))) < 2

    config = CompareConfig(games=("catch",), tasks=("none", "reverse_gvf"), seeds=1, frames=frames, out=str(out), **SMALL)
    compare(config, "again", never)
    for trial in Sweep(config).trials:
        assert trial.status() is TrialStatus.FINISHED
        whole = trial.config.with_run(run_dir=str(tmp_path / trial.name), checkpoint_minutes=5.0)
        result = train(whole, never)
        assert_same_run(whole, trial.config)
        assert json.loads(trial.directory.result_path.read_text())["evaluation"] == result["evaluation"]
        assert_in_tensorboard(out, trial, result)


def assert_in_tensorboard(out, trial, result):
    """The return of the last line under the overlay's tag, once for each frame; the final score under HPARAMS; a strip."""
    lines = [json.loads(line) for line in (trial.path / "metrics.jsonl").read_text().splitlines()]
    overlay = EventAccumulator(str(out / "overlay" / trial.config.task))
    overlay.Reload()
    events = overlay.Scalars("catch/seed1")
    assert [event.step for event in events] == [line["frame"] for line in lines if "charts/episode_return" in line]
    assert events[-1].value == pytest.approx(lines[-1]["charts/episode_return"])
    board = EventAccumulator(str(trial.path))
    board.Reload()
    assert [event.value for event in board.Scalars("final/score")] == [pytest.approx(result["evaluation"]["mean"])]
    assert "_hparams_/session_start_info" in board.Tags()["tensors"] or board.SummaryMetadata("_hparams_/session_start_info")
    assert "evaluation/game" in board.Tags()["images"]


def test_a_failing_trial_is_reported_and_a_killed_one_is_retried(tmp_path, never, unmeasured, monkeypatch):
    monkeypatch.setenv(MARK, str(tmp_path / "died"))
    games = ("gym:tests.helpers.counter:Failing-v0", "catch", "gym:tests.helpers.dying:Dying-v0")
    config = CompareConfig(games=games, tasks=("none",), seeds=1, frames=200, out=str(tmp_path / "g"), attempts=2, **SMALL)
    started = []
    begin = compare_module.SweepRun._start
    monkeypatch.setattr(compare_module.SweepRun, "_start", lambda self, trial: (started.append(trial.name), begin(self, trial)))
    with pytest.raises(
        PoolError,
        match=r"^1 of 3 trials failed: .*Failing-v0-none-seed1: .* action [0-2]: RuntimeError: the joystick came off$",
    ):
        compare(config, "test", never)
    failing, catch, dying = (trial.name for trial in Sweep(config).trials)
    assert sorted(started) == sorted([failing, failing, catch, dying, dying])
    assert (tmp_path / "died").exists()
    failures = json.loads((tmp_path / "g" / "failures.json").read_text())
    assert list(failures) == [failing]
    assert failures[failing].endswith("RuntimeError: the joystick came off")
    statuses = Sweep(config).statuses()
    assert (statuses[catch], statuses[dying]) == (TrialStatus.FINISHED, TrialStatus.FINISHED)
    assert statuses[failing] is not TrialStatus.FINISHED


def test_varied_settings_appear_in_the_report_and_in_hparams(tmp_path, never, unmeasured):
    vary = ("reverse_gvf.answer_weight=0.1,0.3",)
    config = CompareConfig(
        games=("catch",), tasks=("none", "reverse_gvf"), vary=vary, seeds=1, frames=200, out=str(tmp_path / "g"), **SMALL
    )
    compare(config, "test", never)
    report = make_report(ReportConfig(directories=(config.out,)))
    assert report.problems == []
    numbers = json.loads(report.page.with_name("report.json").read_text())
    labels = ["none", "reverse_gvf (answer_weight 0.1)", "reverse_gvf (answer_weight 0.3)"]
    assert [(cell["agent"], cell["finished"]) for cell in numbers["scores"]] == [(label, 1) for label in labels]
    assert [pair["agent"] for pair in numbers["comparisons"]] == labels[1:]
    listed = {}
    for trial in Sweep(config).trials:
        (path,) = trial.path.glob("*.hparams")
        tags = [value for event in EventFileLoader(str(path)).Load() for value in event.summary.value]
        (start,) = [value for value in tags if value.tag == "_hparams_/session_start_info"]
        info = HParamsPluginData.FromString(start.metadata.plugin_data.content).session_start_info
        listed[trial.agent] = info.hparams["answer_weight"].string_value
        assert info.hparams["task"].string_value == trial.config.task
    assert listed == {"none": "-", "reverse_gvf-answer_weight=0.1": "0.1", "reverse_gvf-answer_weight=0.3": "0.3"}
    assert {path.name for path in (tmp_path / "g" / "overlay").iterdir()} == set(listed)


@pytest.mark.slow
@pytest.mark.skipif(available_cores() < 2, reason="needs two cores")
def test_a_trial_with_ray_actors(tmp_path, never, unmeasured):
    config = CompareConfig(
        games=("catch",), tasks=("none",), seeds=1, frames=400, out=str(tmp_path / "g"), cores_per_trial=2, **SMALL
    )
    compare(config, "test", never)
    trial = Sweep(config).trials[0]
    assert trial.status() is TrialStatus.FINISHED
    last = json.loads((trial.path / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["actors/alive"], last["actors/restarted"]) == (1, 0)
    assert last["memory/actors_mb"] > 0


def test_cores_are_shared_between_learner_and_actors(make_config):
    assert share_cores(make_config(pool="serial"), 1)[1] == 0
    config, actors = share_cores(make_config(pool="ray"), 8)
    assert actors + config.learner.learner_threads == 8
    assert config.actors.num_actors == actors


def test_a_finished_sweep_is_neither_measured_nor_started(tmp_path, never, monkeypatch, capsys):
    sweep = make_sweep(tmp_path / "g")
    for trial in sweep.trials:
        write_trial(trial, score=1.0)
    monkeypatch.setattr(compare_module, "start_ray", lambda *_: pytest.fail("started"))
    monkeypatch.setattr(compare_module, "estimate_sweep", lambda *_: pytest.fail("measured"))
    compare(
        CompareConfig(games=("catch",), tasks=("none", "reverse_gvf"), seeds=2, frames=FRAMES, out=str(sweep.out)), "x", never
    )
    assert capsys.readouterr().out == "nothing is left to do: 4 of 4 trials finished\n"


def test_a_directory_that_a_node_does_not_see_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "10.0.0.7")
    sweep = make_sweep(tmp_path / "here")
    check_visible(str(tmp_path), sweep.out)
    check_visible(str(tmp_path), Path("here"))
    for working_directory, out in ((tmp_path / "nowhere", sweep.out), (tmp_path, tmp_path / "elsewhere"), (tmp_path, "runs/x")):
        with pytest.raises(NodeError, match=rf"^--out {out} of the sweep is not visible on node 10.0.0.7; its"):
            check_visible(str(working_directory), Path(out))


def test_a_sweep_ends_at_once_where_its_directory_is_not_visible(tmp_path, never, monkeypatch):
    """Before the first attempt of another trial; nothing is left running."""
    monkeypatch.setattr(compare_module.os, "getcwd", lambda: str(tmp_path / "nowhere"))
    config = CompareConfig(games=("catch",), tasks=("none",), seeds=4, frames=400, out=str(tmp_path / "out"))
    with pytest.raises(NodeError, match=r"is not visible on node 127\.0\.0\.1"):
        compare(config, "launch.py compare", never)
    assert not ray.is_initialized()
    assert not list((tmp_path / "out").glob("catch-*"))
