"""Experiments: runs are made in parallel, kept, and made again if they are damaged."""

import errno
import os
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from ray import cloudpickle

from configs.errors import PoolError, RunError, StopRequested
from studies.reproduce.experiment import Experiment, mean_and_error, run_generator
from studies.reproduce.run_store import RunStore

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


def made(runs):
    """In the place of `Experiment._make`: the given runs."""
    return lambda *_: iter(runs.items())


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
    assert sorted(RunStore(tmp_path).read()) == [0, 1, 3]


def test_a_killed_worker_is_replaced(tmp_path, never):
    data = Experiment(tmp_path / "out", {"mark": str(tmp_path / "mark")}).collect(2, 1, die_once, "test", never)
    assert [run["value"] for run in data] == [0, 1]


@pytest.mark.parametrize("content", ["{}", "[]", "null", "{", "[" * 200_000, "\0"])
def test_a_directory_that_cannot_be_used_is_refused(tmp_path, content):
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(RunError, match="cannot use"):
        Experiment(tmp_path, {})


def plant(path, kind):
    """Make something else than a small file."""
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
    for name in ("runs/000.json", "runs.jsonl.gz"):
        (tmp_path / "out" / "runs").mkdir(exist_ok=True)
        plant(tmp_path / "out" / name, kind)
        with pytest.raises(RunError, match="cannot read"):
            experiment.collect(1, 1, double, "test", never, 0)
        shutil.rmtree(tmp_path / "out" / "runs")


def test_a_full_disk_is_reported_in_one_line(tmp_path, never, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    experiment = Experiment(tmp_path, {"factor": 1})
    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(experiment, "_make", made({0: {"value": 1}}))
    message = r"cannot write \S+: No space left on device; the same command continues"
    for work in (
        lambda: experiment.collect(1, 1, double, "test", never, 0),
        lambda: experiment.write_json("data.json", {}),
        lambda: experiment.write_text("summary.md", ""),
        lambda: Experiment(tmp_path / "other", {}),
    ):
        with pytest.raises(RunError, match=message):
            work()


def test_runs_are_packed_when_the_command_is_stopped_and_continued_from_there(tmp_path, never, monkeypatch):
    def stopped(*_):
        yield 0, {"value": 0}
        yield 2, {"value": 2}
        raise StopRequested

    experiment = Experiment(tmp_path, {"factor": 1})
    monkeypatch.setattr(experiment, "_make", stopped)
    with pytest.raises(StopRequested):
        experiment.collect(4, 1, double, "test", never, 0)
    assert not (tmp_path / "runs").exists()
    asked = []
    monkeypatch.setattr(experiment, "_make", lambda chunks, *_: asked.extend(chunks) or made({1: {}, 3: {}})())
    assert experiment.collect(4, 1, double, "test", never, 0) == [{"value": 0}, {}, {"value": 2}, {}]
    assert asked == [[1], [3]]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "runs.jsonl.gz", "settings.json"]


def test_fewer_runs_leave_the_others_in_the_archive(tmp_path, never, monkeypatch):
    experiment = Experiment(tmp_path, {"factor": 1})
    monkeypatch.setattr(experiment, "_make", made({number: {"value": number} for number in range(3)}))
    experiment.collect(3, 1, double, "test", never, 0)
    before = (tmp_path / "runs.jsonl.gz").read_bytes()
    assert experiment.collect(1, 1, double, "test", never, 0) == [{"value": 0}]
    assert (tmp_path / "runs.jsonl.gz").read_bytes() == before


def test_a_damaged_archive_stops_the_command(tmp_path, never, monkeypatch):
    experiment = Experiment(tmp_path, {"factor": 1})
    (tmp_path / "runs.jsonl.gz").write_bytes(b"nonsense")
    monkeypatch.setattr(experiment, "_make", lambda *_: pytest.fail("a run was made"))
    with pytest.raises(RunError, match=r"runs.jsonl.gz is damaged .*; restore it, or remove it to make its runs again$"):
        experiment.collect(1, 1, double, "test", never, 0)


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
