"""The runs of an experiment on disk: packed deterministically, and never lost."""

import gzip
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from configs.errors import RunError
from studies.reproduce import run_store
from studies.reproduce.run_store import RunStore

RUNS = {number: {"scores": [number / 3, -0.0, float("inf")], "name": f"run {number}"} for number in (0, 1, 2, 999, 1000)}


class Killed(BaseException):
    """In the place of a SIGKILL."""


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path)
    for number, data in RUNS.items():
        store.write(number, data)
    return store


def archive(tmp_path):
    return tmp_path / "runs.jsonl.gz"


def names(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


def test_packed_runs_are_those_that_were_written(store, tmp_path):
    assert store.read() == RUNS
    store.pack()
    assert names(tmp_path) == ["runs.jsonl.gz"]
    assert store.read() == RUNS


def test_an_archive_is_extended_by_new_runs(store):
    store.pack()
    store.write(3, {"scores": []})
    assert store.read() == RUNS | {3: {"scores": []}}
    store.pack()
    assert store.read() == RUNS | {3: {"scores": []}}


def test_the_bytes_of_an_archive_depend_on_the_runs_alone(store, tmp_path):
    store.pack()
    (tmp_path / "other").mkdir()
    other = RunStore(tmp_path / "other")
    for number in reversed(RUNS):
        other.write(number, RUNS[number])
        other.pack()
    assert archive(tmp_path).read_bytes() == archive(tmp_path / "other").read_bytes()


def test_an_archive_without_new_runs_is_not_written_again(store, tmp_path):
    store.pack()
    before = archive(tmp_path).stat().st_mtime_ns
    store.pack()
    assert archive(tmp_path).stat().st_mtime_ns == before


STEPS = [(os, "open"), (os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "rmdir")]
"""Functions of the system that packing calls; a process may be killed at each call."""


@pytest.mark.parametrize("call", range(1, 9))
@pytest.mark.parametrize("owner_and_name", STEPS, ids=lambda pair: pair[1])
@pytest.mark.parametrize("archived", [False, True], ids=["first archive", "extended archive"])
def test_a_kill_at_any_step_of_packing_loses_no_run(store, tmp_path, monkeypatch, owner_and_name, call, archived):
    if archived:
        store.pack()
        store.write(3, {"scores": []})
    expected = store.read()
    owner, name = owner_and_name
    original, calls = getattr(owner, name), []

    def killing(*arguments, **options):
        calls.append(arguments)
        if len(calls) == call:
            raise Killed
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killing)
        with suppress(Killed):
            store.pack()
    assert store.read() == expected
    store.pack()
    assert store.read() == expected
    assert names(tmp_path) == ["runs.jsonl.gz"]


def test_unfinished_files_of_a_killed_process_are_removed(store, tmp_path):
    (tmp_path / "runs" / ".003.json.12.tmp").write_text("{")
    store.pack()
    assert names(tmp_path) == ["runs.jsonl.gz"]


@pytest.mark.parametrize("content", ["", "[]", "7", "[" * 200_000, '{"value": 1'])
def test_a_damaged_file_is_a_missing_run_and_is_not_packed(store, tmp_path, content):
    (tmp_path / "runs" / "001.json").write_text(content)
    expected = {number: data for number, data in RUNS.items() if number != 1}
    assert store.read() == expected
    store.pack()
    assert store.read() == expected
    store.write(1, RUNS[1])
    store.pack()
    assert store.read() == RUNS


def test_other_files_are_left_alone(store, tmp_path):
    for name in ("notes.json", "1.json", "000.txt"):
        (tmp_path / "runs" / name).write_text("{}")
    store.pack()
    assert names(tmp_path / "runs") == ["000.txt", "1.json", "notes.json"]
    assert store.read() == RUNS


def lines(*records):
    return gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode())


RUN = {"run": 0, "data": {}}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data + b"x",
        lambda data: data + data,
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: b"",
        lambda data: b"{}\n",
        lambda data: lines(RUN, RUN),
        lambda data: lines([0, {}]),
        lambda data: lines({"run": "0", "data": {}}),
        lambda data: lines({"run": 0, "data": []}),
        lambda data: lines({"run": 0}),
        lambda data: gzip.compress(b"[" * 200_000),
    ],
)
def test_a_damaged_archive_is_refused_in_one_line_and_not_changed(store, tmp_path, damage):
    store.pack()
    archive(tmp_path).write_bytes(damage(archive(tmp_path).read_bytes()))
    before = archive(tmp_path).read_bytes()
    store.write(3, {})
    for use in (store.read, store.pack):
        with pytest.raises(RunError, match=r"^\S+runs.jsonl.gz is damaged \(.*\); restore it, or remove it") as error:
            use()
        assert "\n" not in str(error.value)
    assert archive(tmp_path).read_bytes() == before
    assert (tmp_path / "runs" / "003.json").exists()


def test_an_archive_is_unpacked_up_to_a_limit(store, monkeypatch):
    store.pack()
    monkeypatch.setattr(run_store, "MAX_UNPACKED_BYTES", 100)
    with pytest.raises(RunError, match="is damaged"):
        store.read()
