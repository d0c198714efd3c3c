"""Runs of an experiment: spread, kept, made again."""

import errno
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from ray import cloudpickle

from configs.errors import PoolError, RunError
from studies.reproduce.experiment import Experiment, mean_and_error, run_generator

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import a test.


def double(settings, numbers, added):
    return [{"value": settings["factor"] * number + added} for number in numbers]


def fail_at_two(settings, numbers):
    if 2 in numbers:
        raise ArithmeticError("two is too many")
    return [{"value": number} for number in numbers]


def die_once(settings, numbers):
    """Kills its own process, but only the first time."""
    mark = Path(settings["mark"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    return [{"value": number} for number in numbers]


def test_runs_are_in_order_for_any_chunk_size(tmp_path, never):
    data = Experiment(tmp_path, {"factor": 2}).collect(5, 2, double, "test", never, 100)
    assert [run["value"] for run in data] == [100, 102, 104, 106, 108]


def test_existing_runs_are_extended(tmp_path, never):
    experiment = Experiment(tmp_path, {"factor": 2})
    experiment.collect(2, 1, double, "test", never, 0)
    data = Experiment(tmp_path, {"factor": 2}).collect(3, 1, double, "test", never, 50)
    assert [run["value"] for run in data] == [0, 2, 54]


def test_a_failed_run_is_named_and_the_others_are_kept(tmp_path, never):
    with pytest.raises(PoolError, match=r"^runs 2 to 2 failed: ArithmeticError: two is too many$"):
        Experiment(tmp_path, {}).collect(4, 1, fail_at_two, "test", never)
    assert sorted(os.listdir(tmp_path / "runs")) == ["000.json", "001.json", "003.json"]


def test_a_killed_worker_is_replaced(tmp_path, never):
    data = Experiment(tmp_path / "out", {"mark": str(tmp_path / "mark")}).collect(2, 1, die_once, "test", never)
    assert [run["value"] for run in data] == [0, 1]


@pytest.mark.parametrize("content", ["{}", "[]", "null", "{", "[" * 200_000, "\0"])
def test_a_directory_that_cannot_be_used_is_refused(tmp_path, content):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(RunError, match="cannot use"):
        Experiment(tmp_path, {})


def plant(path, kind):
    """What is no file, in the place of one."""
    if kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 10**12)


@pytest.mark.parametrize("kind", ["link", "directory", "pipe", "huge"])
def test_only_plain_files_of_bounded_size_are_read(tmp_path, never, kind):
    plant(tmp_path / "settings.json", kind)
    with pytest.raises(RunError, match="cannot use"):
        Experiment(tmp_path, {})
    experiment = Experiment(tmp_path / "out", {"factor": 1})
    plant(tmp_path / "out" / "runs" / "000.json", kind)
    with pytest.raises(RunError, match="cannot read"):
        experiment.collect(1, 1, double, "test", never, 0)


@pytest.mark.parametrize("content", ["", "[]", "7", "[" * 200_000, '{"value": 1'])
def test_a_damaged_run_is_made_again(tmp_path, content):
    experiment = Experiment(tmp_path, {})
    (tmp_path / "runs" / "000.json").write_text(content)
    assert experiment._read(0) is None


def test_a_full_disk_is_reported_in_one_line(tmp_path, never, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    experiment = Experiment(tmp_path, {"factor": 1})
    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(experiment, "_make", lambda *_: iter([(0, {"value": 1})]))
    message = r"cannot write \S+: No space left on device; the same command continues"
    for work in (
        lambda: experiment.collect(1, 1, double, "test", never, 0),
        lambda: experiment.write_json("data.json", {}),
        lambda: experiment.write_text("summary.md", ""),
        lambda: Experiment(tmp_path / "other", {}),
    ):
        with pytest.raises(RunError, match=message):
            work()


def test_a_finished_experiment_needs_no_workers(tmp_path, never, monkeypatch):
    Experiment(tmp_path, {"factor": 1}).collect(2, 1, double, "test", never, 0)
    monkeypatch.setattr("actors.cluster.start_ray", lambda *_: pytest.fail("started"))
    assert len(Experiment(tmp_path, {"factor": 1}).collect(2, 1, double, "test", threading.Event(), 0)) == 2


def test_generators_differ_between_runs_and_not_between_calls():
    draws = [run_generator(3, number).random() for number in (0, 1, 0)]
    assert draws[0] == draws[2] != draws[1]


def test_mean_and_standard_error():
    mean, error = mean_and_error(np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 2.0]]))
    assert mean.tolist() == [3, 2]
    assert error == pytest.approx([2 / np.sqrt(3), 0])
