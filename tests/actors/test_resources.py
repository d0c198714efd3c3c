import os
import subprocess
import sys

import pytest

from actors.resources import (
    Resources,
    acting_threads,
    available_cores,
    cores_of_ranks,
    cores_to_pin,
)
from tests.helpers.running import ROOT


def test_available_cores_respect_the_quota_of_a_container(tmp_path):
    quota = tmp_path / "cpu.max"
    quota.write_text("100000 100000\n")
    assert available_cores(quota) == 1
    unlimited = available_cores(tmp_path / "missing")
    quota.write_text("max 100000\n")
    assert available_cores(quota) == unlimited


@pytest.mark.parametrize(
    ("actors", "threads", "expected"),
    [(3, 2, [4, 6, 7]), (1, 4, [7]), (2, 2, []), (4, 2, []), (1, 1, [])],
)
def test_actors_are_pinned_only_if_the_run_fills_the_machine(monkeypatch, actors, threads, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7, 0, 4, 6, 2}, raising=False)
    assert cores_to_pin(Resources(actors, 16, threads)) == expected


def test_nothing_is_pinned_without_affinity_support(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores_to_pin(Resources(1, 16, 1)) == []


@pytest.mark.parametrize(
    ("num_envs", "cores", "threads"), [(1, 8, 1), (2, 2, 1), (8, 2, 1), (16, 2, 2), (16, 1, 1), (16, 64, 2)]
)
def test_number_of_inference_threads(num_envs, cores, threads):
    assert acting_threads(num_envs, cores) == threads


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"learners": 2}, [[2, 4], [6, 7]]),
        ({"learners": 4, "pool": "serial"}, [[2], [4], [6], [7]]),
        ({"learners": 2, "pool": "serial"}, [[], []]),
        ({"learners": 2, "pin_actors": False}, [[], []]),
    ],
)
def test_ranks_are_pinned_only_if_they_fill_the_machine(make_config, monkeypatch, options, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7, 4, 6, 2}, raising=False)
    config = make_config(**{"pool": "ray"} | options)
    assert cores_of_ranks(config, Resources(1, 16, 1)) == expected


@pytest.mark.parametrize(("given", "policy"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_omp_wait_policy_is_passive_unless_set(given, policy):
    """Torch reads it once, on import."""
    look = "import os, launch; launch.main([]); print(os.environ['OMP_WAIT_POLICY'])"
    done = subprocess.run([sys.executable, "-c", look], env=given, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[-1] == policy
