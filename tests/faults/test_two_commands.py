"""Two commands in one directory: the second is refused, unless the first is dead or the second only reads."""

import json
import os
import signal
import threading

import pytest

import launch
from configs.commands import EvaluateConfig
from configs.errors import RunError
from tests.helpers.running import PROCESSES, start_training, wait_until
from training.evaluation import evaluate_run
from training.loop import train
from training.storage import files
from training.storage.run_lock import locked


def hold(path, ready):
    with locked(path):
        ready.set()
        signal.pause()


def test_a_second_command_is_refused_and_a_dead_process_holds_no_lock(make_config, capsys, never):
    config = make_config(frames=40)
    train(config, never)
    ready = PROCESSES.Event()
    owner = PROCESSES.Process(target=hold, args=(config.run_path, ready), daemon=True)
    owner.start()
    assert ready.wait(60)
    capsys.readouterr()
    before = {path: path.read_bytes() for path in config.run_path.rglob("*") if path.is_file()}
    assert launch.main(["train", "--run-dir", str(config.run_path), "--resume"]) == 2
    complaint = capsys.readouterr().err
    assert f"is in use by another command (process {owner.pid})" in complaint
    assert complaint.count("\n") == 1
    assert {path: path.read_bytes() for path in config.run_path.rglob("*") if path.is_file()} == before
    assert launch.main(["evaluate", "--run-dir", str(config.run_path), "--episodes", "1"]) == 0
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert launch.main(["train", "--run-dir", str(config.run_path), "--resume"]) == 0


def test_two_new_runs_in_one_directory(make_config, never):
    config = make_config(frames=40)
    with locked(config.run_path), pytest.raises(RunError, match="in use by another command"):
        train(config, never)
    assert train(config, never)["frames"] == 40


def evaluate_often(path, failures):
    """To be the whole life of a process."""
    for _ in range(10):
        try:
            evaluate_run(EvaluateConfig(str(path), episodes=1), threading.Event())
        except Exception as error:
            failures.put(repr(error))
            raise


def test_evaluation_during_training_that_replaces_checkpoints(make_config):
    config = make_config(frames=10**9, checkpoint_minutes=1e-9, keep_checkpoints=1)
    checkpoints = config.run_path / "checkpoints"
    training = start_training(config)
    others = []
    try:
        wait_until(lambda: any(int(path.stem.removeprefix("frame_")) for path in checkpoints.glob("frame_*.safetensors")))
        failures = PROCESSES.Queue()
        others = [PROCESSES.Process(target=evaluate_often, args=(config.run_path, failures)) for _ in range(2)]
        for process in others:
            process.start()
        for process in others:
            process.join(120)
        assert [process.exitcode for process in others] == [0, 0], failures.get(timeout=1)
        assert training.is_alive()
    finally:
        for process in (training, *others):
            process.kill()
            process.join()
    result = json.loads((config.run_path / "evaluation.json").read_text())
    assert len(result["scores"]) == 1
    assert result["frame"] > 0


def test_scores_survive_a_command_that_removes_unfinished_files(make_config, never, monkeypatch):
    """A run that is resumed removes what killed commands left, and cannot know that this file is still being written."""
    config = make_config(frames=40)
    train(config, never)
    fsync, cleared = os.fsync, []

    def clearing(descriptor):
        fsync(descriptor)
        if not cleared:
            cleared.extend(path for path in config.run_path.iterdir() if files.is_unfinished(path))
            with locked(config.run_path):
                pass

    monkeypatch.setattr(os, "fsync", clearing)
    evaluate_run(EvaluateConfig(str(config.run_path), episodes=1), never)
    assert [path.name for path in cleared] == [f".evaluation.json.{os.getpid()}.tmp"]
    assert len(json.loads((config.run_path / "evaluation.json").read_text())["scores"]) == 1
