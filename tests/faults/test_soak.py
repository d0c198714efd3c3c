"""The soak in short, and what it calls a leak."""

import json
import subprocess
import sys

import pytest

from studies.benchmark import soak
from tests.running import ROOT


def samples(**changes):
    """A hundred looks at a run whose every number stays as it is, but for those that are given: by look, from 0 to 1."""
    flat = dict.fromkeys(soak.MEMORY, 500.0) | dict.fromkeys(soak.COUNTS, 30)
    looks = [i / 99 for i in range(100)]
    return [
        flat | {name: change(look) for name, change in changes.items()} | {"seconds": look, "frame": look} for look in looks
    ]


@pytest.mark.parametrize(
    ("name", "change", "flat"),
    [
        ("learner_mb", lambda look: 500 + 10 * look, True),
        ("learner_mb", lambda look: 500 + 20 * look, False),
        ("actors_mb", lambda look: 500 - 100 * look, True),
        ("learner_mb", lambda look: 300 if look < 0.15 else 500, True),
        ("object_store_mb", lambda look: 500 if look < 0.8 else 520, False),
        ("learner_fds", lambda look: 30 + round(10 * look), False),
        ("actors_threads", lambda look: 30 if look < 0.7 else 31, False),
        ("actors_threads", lambda look: 30 if look < 0.7 else 29, False),
        ("learner_threads", lambda look: 33 if round(99 * look) % 10 == 3 else 30, True),
    ],
    ids=[
        "within the limit", "a slow leak", "a fall", "warm-up", "a late leak", "leaked files", "a new thread", "a lost thread",
        "threads that come and go",
    ],
)  # fmt: skip
def test_leaks_are_detected(name, change, flat):
    verdict = soak.judge(samples(**{name: change}))
    assert verdict.flat == flat
    others = verdict.lines() | {name: ""}
    assert set(others.values()) == {"", "+0.00%", "30"}


def test_the_text_of_a_memory_report():
    changed = samples(learner_fds=lambda look: 30 if look < 0.7 else 32, learner_mb=lambda look: 500 if look < 0.5 else 450)
    lines = soak.judge(changed).lines()
    assert (lines["learner_mb"], lines["learner_fds"]) == ("-10.00%", "30, later 32 (30 to 32)")


def test_a_run_too_short_for_a_memory_report_is_refused():
    with pytest.raises(SystemExit, match="too short"):
        soak.judge(samples()[:3])


@pytest.mark.slow
def test_a_short_soak_of_a_real_run(tmp_path):
    """Whether it finds so short a run flat is another matter: Python itself is still warming up."""
    flags = f"--game catch --torso shallow --num-actors 1 --frames 30_000 --seconds 0.1 --out {tmp_path / 'soak'}"
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), *flags.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    record = json.loads((tmp_path / "soak.json").read_text())
    assert done.returncode == (0 if record["flat"] else 1), done.stderr
    assert done.stdout.splitlines()[-1].startswith("flat" if record["flat"] else "NOT flat")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
    assert record["drift"].keys() == set(soak.MEMORY)
    assert record["counts"].keys() == record["ranges"].keys() == set(soak.COUNTS)
    assert all(look[name] > 0 for look in record["samples"] for name in (*soak.MEMORY, *soak.COUNTS))
