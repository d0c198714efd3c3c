"""How many actors, games and threads suit the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from configs.train import TrainConfig

LEARNER_SHARE = 0.45
"""Part of the cores that the learner's arithmetic takes when emulation and inference take the rest (nature torso, CPU)."""
MAX_LEARNER_THREADS = 16
MIN_ENVS, MAX_ENVS = 16, 32
"""Fewer games waste inference on small matrices; more make trajectories that go stale before they are used."""


@dataclass(frozen=True)
class Resources:
    num_actors: int
    envs_per_actor: int
    learner_threads: int


def available_cores(cgroup_cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores this process may use: its affinity, further limited by a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cgroup_cpu_max.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def choose_resources(config: TrainConfig, cores: int, gpu: bool) -> Resources:
    """Fills in what the config leaves to us.

    Learner and actors share the cores without overlap. One actor more would use the moments in which the learner waits, but
    the three then push each other out of the caches, which costs more than it brings.
    """
    share = 1 if gpu else min(MAX_LEARNER_THREADS, max(1, round(LEARNER_SHARE * cores)))
    threads = config.learner.learner_threads or share
    actors = config.actors.num_actors or max(1, cores - threads)
    envs = config.actors.envs_per_actor or min(MAX_ENVS, max(MIN_ENVS, config.learner.batch_size // actors))
    return Resources(actors, envs, threads)
