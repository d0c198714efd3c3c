"""The soak test in short form, and its definition of a leak."""

import json
import subprocess
import sys

import pytest

from studies.benchmark import soak
from tests.helpers.running import ROOT


def samples(**changes):
    """A hundred samples of a run with constant values, except for those given as functions of time from 0 to 1."""
    flat = dict.fromkeys(soak.MEMORY, 500.0) | dict.fromkeys(soak.COUNTS, 30)
    times = [i / 99 for i in range(100)]
    return [
        flat | {name: change(time) for name, change in changes.items()} | {"seconds": time, "frame": time} for time in times
    ]


@pytest.mark.parametrize(
    ("name", "change", "flat"),
    [
        ("learner_mb", lambda time: 500 + 10 * time, True),
        ("learner_mb", lambda time: 500 + 20 * time, False),
        ("actors_mb", lambda time: 500 - 100 * time, True),
        ("learner_mb", lambda time: 300 if time < 0.15 else 500, True),
        ("object_store_mb", lambda time: 500 if time < 0.8 else 520, False),
        ("learner_fds", lambda time: 30 + round(10 * time), False),
        ("actors_threads", lambda time: 30 if time < 0.7 else 31, False),
        ("actors_threads", lambda time: 30 if time < 0.7 else 29, False),
        ("object_store_mb", lambda time: 0 if time < 0.5 else 1, False),
        ("learner_threads", lambda time: 33 if round(99 * time) % 10 == 3 else 30, True),
    ],
    ids=[
        "within the limit", "a slow leak", "a fall", "warm-up", "a late leak", "leaked files", "a new thread", "a lost thread",
        "memory that was not there", "threads that come and go",
    ],
)  # fmt: skip
def test_leaks_are_detected(name, change, flat):
    memory = soak.analyse(samples(**{name: change}))
    assert memory.flat == flat
    others = memory.lines() | {name: ""}
    assert set(others.values()) == {"", "+0.00%", "30"}


def test_the_text_of_a_memory_report():
    changed = samples(learner_fds=lambda time: 30 if time < 0.7 else 32, learner_mb=lambda time: 500 if time < 0.5 else 450)
    lines = soak.analyse(changed).lines()
    assert (lines["learner_mb"], lines["learner_fds"]) == ("-10.00%", "30, later 32 (30 to 32)")


def test_a_run_too_short_for_a_memory_report_is_refused():
    with pytest.raises(SystemExit, match="too short"):
        soak.analyse(samples()[:3])


def test_a_run_without_actors_has_no_leak_there():
    memory = soak.analyse(samples(actors_mb=lambda time: 0, actors_fds=lambda time: 0, actors_threads=lambda time: 0))
    assert memory.flat
    assert memory.lines()["actors_mb"] == "+0.00%"


@pytest.mark.slow
def test_a_soak_of_two_ranks_samples_both(tmp_path):
    flags = f"--game catch --torso shallow --learners 2 --pool serial --frames 30_000 --seconds 0.1 --out {tmp_path / 'soak'}"
    command = [sys.executable, "-m", "studies.benchmark.soak", *flags.split()]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    record = json.loads((tmp_path / "soak.json").read_text())
    assert {sample["processes"] for sample in record["samples"]} == {2}
    assert {sample["actors_mb"] for sample in record["samples"]} == {0}


@pytest.mark.slow
def test_a_short_soak_of_a_real_run(tmp_path):
    """So short a run may be flat or not, because Python is still warming up."""
    flags = f"--game catch --torso shallow --num-actors 1 --frames 30_000 --seconds 0.1 --out {tmp_path / 'soak'}"
    command = [sys.executable, "-m", "studies.benchmark.soak", *flags.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    record = json.loads((tmp_path / "soak.json").read_text())
    assert done.returncode == (0 if record["flat"] else 1), done.stderr
    assert done.stdout.splitlines()[-1].startswith("flat" if record["flat"] else "NOT flat")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
    assert record["drift"].keys() == set(soak.MEMORY)
    assert record["counts"].keys() == record["ranges"].keys() == set(soak.COUNTS)
    assert all(sample[name] > 0 for sample in record["samples"] for name in (*soak.MEMORY, *soak.COUNTS))
