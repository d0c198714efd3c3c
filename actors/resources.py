"""How many actors, games and threads suit the machine.

Each of `in_flight * actors` rollout calls under way brings a trajectory of every game of its actor, and an update uses up
`batch_size` of those, so the weights that acted are about

    lag = in_flight * actors * games per actor / batch_size

updates old when the learner gets to see what they did. More cores must not mean older data: with many of them, actors get
fewer games, and then there are fewer actors than cores.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agents.threads import allowed_threads
from configs.train import TrainConfig

LEARNER_SHARE = 0.45
"""Part of the cores that the learner's arithmetic takes when emulation and inference take the rest (nature torso, CPU)."""
MAX_LEARNER_THREADS = 16
PREFERRED_MIN_ENVS, MAX_ENVS = 16, 32
"""Fewer games waste inference on small matrices; more make trajectories that go stale before they are used."""
MIN_ENVS = 4
"""With fewer still, to keep the lag down, an actor would mostly wait for its own overhead."""
MAX_LAG = 8
"""Updates; twice what two cores have with the default batch."""
OBSERVATIONS_PER_THREAD = 8
"""With fewer of them for each, two threads take as long as one to act."""


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
    the three then push each other out of the caches, which costs more than it brings. What is chosen here keeps the lag
    within MAX_LAG.
    """
    share = 1 if gpu else min(MAX_LEARNER_THREADS, max(1, round(LEARNER_SHARE * cores)))
    threads = allowed_threads(config.learner.learner_threads or share)
    batch_size = config.learner.batch_size
    most_games = MAX_LAG * batch_size // config.actors.in_flight
    most_actors = most_games // (config.actors.envs_per_actor or MIN_ENVS)
    actors = config.actors.num_actors or max(1, min(cores - threads, most_actors))
    envs = min(MAX_ENVS, max(PREFERRED_MIN_ENVS, batch_size // actors))
    envs = config.actors.envs_per_actor or max(1, min(envs, most_games // actors))
    return Resources(actors, envs, threads)


def acting_threads(num_envs: int, cores: int) -> int:
    """Torch threads that help to act in so many games at once."""
    return max(1, min(cores, num_envs // OBSERVATIONS_PER_THREAD))


def cores_to_pin(resources: Resources) -> list[int]:
    """A core for each actor, or none where learner and actors do not just fill the cores that this process may use.

    An actor's emulator runs in a thread of its own that wakes with every step, often on the learner's core: the two then swap
    cores all the time, and caches with them. But who keeps to a core cannot step aside for others.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    filled = resources.num_actors + resources.learner_threads == len(cores)
    return cores[-resources.num_actors :] if filled else []
