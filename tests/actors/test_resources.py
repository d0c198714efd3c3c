import os
import subprocess
import sys

import pytest

from actors.resources import (
    MAX_LAG,
    MIN_ENVS,
    Resources,
    acting_threads,
    available_cores,
    choose_resources,
    cores_to_pin,
)
from tests.running import ROOT


@pytest.mark.parametrize(
    ("cores", "gpu", "batch_size", "expected"),
    [
        (1, False, 32, Resources(1, 32, 1)),
        (2, False, 32, Resources(1, 32, 1)),
        (8, False, 32, Resources(4, 16, 4)),
        (64, False, 32, Resources(32, 4, 16)),
        (2, False, 8, Resources(1, 16, 1)),
        (4, False, 8, Resources(2, 16, 2)),
        (8, False, 8, Resources(4, 8, 4)),
        (64, False, 8, Resources(8, 4, 16)),
        (64, False, 1, Resources(1, 4, 16)),
        (64, True, 1024, Resources(63, 16, 1)),
        (8, True, 256, Resources(7, 32, 1)),
    ],
)
def test_resources_chosen_for_a_machine(make_config, cores, gpu, batch_size, expected):
    assert choose_resources(make_config(batch_size=batch_size, frames=10_000), cores, gpu) == expected


@pytest.mark.parametrize("in_flight", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 4, 8, 32, 256])
def test_the_lag_is_bounded_on_every_machine(make_config, batch_size, in_flight):
    config = make_config(batch_size=batch_size, in_flight=in_flight, frames=10_000)
    for cores in (1, 2, 3, 4, 7, 8, 16, 48, 64, 192):
        for gpu in (False, True):
            chosen = choose_resources(config, cores, gpu)
            assert min(chosen.num_actors, chosen.envs_per_actor) >= 1
            assert in_flight * chosen.num_actors * chosen.envs_per_actor / batch_size <= MAX_LAG
            assert chosen.num_actors == 1 or chosen.envs_per_actor >= MIN_ENVS
            assert chosen.num_actors <= max(1, cores - chosen.learner_threads)


def test_a_partial_choice_of_the_user_is_completed(make_config):
    assert choose_resources(make_config(batch_size=8, num_actors=10), cores=64, gpu=False) == Resources(10, 3, 16)
    assert choose_resources(make_config(batch_size=8, envs_per_actor=16), cores=64, gpu=False) == Resources(2, 16, 16)


def test_values_set_by_the_user_are_kept(make_config):
    config = make_config(num_actors=5, envs_per_actor=3, learner_threads=2)
    assert choose_resources(config, cores=16, gpu=False) == Resources(5, 3, 2)


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


def test_learner_threads_respect_omp_thread_limit(make_config, monkeypatch):
    monkeypatch.setenv("OMP_THREAD_LIMIT", "2")
    assert choose_resources(make_config(batch_size=8, frames=10_000), 8, gpu=False).learner_threads == 2
    assert choose_resources(make_config(batch_size=8, frames=10_000, learner_threads=6), 8, gpu=False).learner_threads == 2


@pytest.mark.parametrize(("given", "policy"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_omp_wait_policy_is_passive_unless_set(given, policy):
    """Torch reads it once, on import."""
    look = "import os, launch; launch.main([]); print(os.environ['OMP_WAIT_POLICY'])"
    done = subprocess.run([sys.executable, "-c", look], env=given, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[-1] == policy
