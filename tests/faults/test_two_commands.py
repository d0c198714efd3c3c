"""Two commands in one directory: the second is refused, unless the first is dead."""

import os
import signal

import pytest

import launch
from learners.run_directory import RunError
from learners.run_lock import locked
from studies.training import train
from tests.running import PROCESSES


def hold(path, ready):
    with locked(path):
        ready.set()
        signal.pause()


def test_the_second_command_is_refused_and_a_dead_owner_holds_nothing(make_config, capsys, never):
    config = make_config(frames=40)
    train(config, never)
    ready = PROCESSES.Event()
    owner = PROCESSES.Process(target=hold, args=(config.run_path, ready), daemon=True)
    owner.start()
    assert ready.wait(60)
    capsys.readouterr()
    before = {path: path.read_bytes() for path in config.run_path.rglob("*") if path.is_file()}
    for arguments in (["train", "--resume"], ["evaluate", "--episodes", "1"]):
        assert launch.main([arguments[0], "--run-dir", str(config.run_path), *arguments[1:]]) == 2
        complaint = capsys.readouterr().err
        assert f"is in use by another command (process {owner.pid})" in complaint
        assert complaint.count("\n") == 1
    assert {path: path.read_bytes() for path in config.run_path.rglob("*") if path.is_file()} == before
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    assert launch.main(["evaluate", "--run-dir", str(config.run_path), "--episodes", "1"]) == 0


def test_two_new_runs_in_one_directory(make_config, never):
    config = make_config(frames=40)
    with locked(config.run_path), pytest.raises(RunError, match="in use by another command"):
        train(config, never)
    assert train(config, never)["frames"] == 40
