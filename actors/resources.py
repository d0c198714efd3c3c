"""The number of actors, environments and threads for a machine.

Each of the `in_flight * actors` rollout calls in flight returns one trajectory per environment, and an update consumes
`batch_size` of them. So the policy lag, in updates, is about

    lag = in_flight * actors * environments per actor / batch_size

The lag is bounded: with many cores actors get fewer environments, and beyond that there are fewer actors than cores.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agents.threads import allowed_threads
from configs.train import TrainConfig

LEARNER_SHARE = 0.45
"""Share of the cores for the learner; emulation and inference take the rest (measured with the nature torso on CPU)."""
MAX_LEARNER_THREADS = 16
PREFERRED_MIN_ENVS, MAX_ENVS = 16, 32
"""Environments per actor: fewer make inference inefficient, more increase the policy lag."""
MIN_ENVS = 4
"""Least environments per actor to keep the lag down; below it overhead dominates."""
MAX_LAG = 8
"""Updates; twice the lag of two cores with the default batch."""
OBSERVATIONS_PER_THREAD = 8
"""With fewer observations per thread, two threads are no faster than one."""


@dataclass(frozen=True)
class Resources:
    num_actors: int
    envs_per_actor: int
    learner_threads: int


def available_cores(cgroup_cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use: its affinity, limited by the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cgroup_cpu_max.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def choose_resources(config: TrainConfig, cores: int, gpu: bool) -> Resources:
    """Actors, environments per actor and threads of each learner; values set in the config are kept.

    Learner and actors share the cores without overlap. One more actor would use the time in which the learner waits, but costs
    more in cache misses than it gains. Values chosen here keep the lag within MAX_LAG.
    """
    cores, batch_size = max(1, cores // config.learner.learners), config.learner.batch_size // config.learner.learners
    share = 1 if gpu else min(MAX_LEARNER_THREADS, max(1, round(LEARNER_SHARE * cores)))
    threads = allowed_threads(config.learner.learner_threads or share)
    most_games = MAX_LAG * batch_size // config.actors.in_flight
    most_actors = most_games // (config.actors.envs_per_actor or MIN_ENVS)
    actors = config.actors.num_actors or max(1, min(cores - threads, most_actors))
    envs = min(MAX_ENVS, max(PREFERRED_MIN_ENVS, batch_size // actors))
    envs = config.actors.envs_per_actor or max(1, min(envs, most_games // actors))
    return Resources(actors, envs, threads)


def acting_threads(num_envs: int, cores: int) -> int:
    """Torch threads that speed up inference for `num_envs` observations at once."""
    return max(1, min(cores, num_envs // OBSERVATIONS_PER_THREAD))


def cores_of_ranks(config: TrainConfig, resources: Resources) -> list[list[int]]:
    """For each rank the cores that it shares with its actors if all ranks fill the cores of this process, else none."""
    learners = config.learner.learners
    each = 1 if config.actors.pool == "serial" else resources.learner_threads + resources.num_actors
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if learners * each != len(cores) or not config.actors.pin_actors or config.actors.ray_address:
        return [[] for _ in range(learners)]
    return [cores[rank * each : (rank + 1) * each] for rank in range(learners)]


def cores_to_pin(resources: Resources) -> list[int]:
    """One core per actor if learner and actors exactly fill the cores of this process, else an empty list.

    The thread of an actor's emulator wakes at every step, often on the learner's core; without pinning the two keep swapping
    cores and caches. A pinned actor cannot make way for other processes, so a partly used machine is left alone.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    filled = resources.num_actors + resources.learner_threads == len(cores)
    return cores[-resources.num_actors :] if filled else []
