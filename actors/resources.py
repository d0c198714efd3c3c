"""The cores of a machine, and the actors, environments and threads of each learner."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from configs.train import TrainConfig

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


def acting_threads(num_envs: int, cores: int) -> int:
    """Torch threads that speed up inference for `num_envs` observations at once."""
    return max(1, min(cores, num_envs // OBSERVATIONS_PER_THREAD))


def cores_of_ranks(config: TrainConfig, resources: Resources) -> list[list[int]]:
    """For each rank the cores that it shares with its actors if all ranks fill the cores of this process, else none."""
    learners = config.learner.ranks
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
