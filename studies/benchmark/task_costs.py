"""Cost of auxiliary tasks: time of a learner step relative to the plain agent's, and peak memory of the meta-gradient."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from actors.resources import Resources
from actors.rollout import RolloutWorker
from actors.trajectory import Collator
from agents.batch import Batch
from agents.threads import set_threads
from configs.errors import StopRequested
from configs.tasks import MetaConfig
from configs.train import TrainConfig
from envs.stream import EnvSpec
from learners.allocator import keep_freed_memory
from learners.learner import Learner
from studies.benchmark.measuring import measure_in_processes

ROUNDS = 2
PERIODS = (2, 4)
"""Periods M as multiples of the window K, besides M = K."""
MEMORY_INTERVALS = (5, 20)


def play_batch(config: TrainConfig, num_envs: int) -> tuple[Batch, EnvSpec]:
    """A batch of the first steps of the game with an untrained network."""
    worker = RolloutWorker(config, num_envs, seed=0)
    worker.set_weights(Learner(config.with_task("none"), worker.spec).weights(), version=0)
    trajectory = worker.rollout()
    worker.close()
    collator = Collator(config.learner.batch_size)
    while not collator.ready:
        collator.add(trajectory)
    return collator.batch(), worker.spec


def measure_tasks(config: TrainConfig, tasks: Sequence[str], resources: Resources, stop: threading.Event) -> dict[str, float]:
    """Time of an update with each task divided by that of a plain update, averaged over a period of the meta-gradient.

    `reverse_gvf` is also measured with longer periods M. Plain agent and task are measured alternately and the median of the
    ratios is taken, because the speed of a machine drifts.
    """
    set_threads(resources.learner_threads)
    batch, spec = play_batch(config, resources.envs_per_actor)
    plain = Learner(config.with_task("none"), spec)
    costs: dict[str, float] = {}
    interval = MetaConfig().meta_interval
    cases = {task: config.with_task(task) for task in tasks}
    if "reverse_gvf" in tasks:
        periods = {n: config.with_task("reverse_gvf", meta_period=n * interval) for n in PERIODS}
        cases |= {f"reverse_gvf, M = {n} K": case for n, case in periods.items()}
    for name, case in cases.items():
        learner = Learner(case, spec)
        updates = period(case, otherwise=4)
        # Warm-up: fills the first window and the allocator's cache.
        _seconds(learner, batch, updates + interval + 1, stop)
        ratios = []
        for _ in range(ROUNDS):
            reference = _seconds(plain, batch, 4, stop)
            measured = _seconds(learner, batch, updates, stop)
            ratios.append(measured / (reference + _seconds(plain, batch, 4, stop)) * 2)
        costs[name] = statistics.median(ratios)
    return costs


def period(config: TrainConfig, otherwise: int) -> int:
    """Updates over which costs are averaged: those of a period of the meta-gradient, if the task has one."""
    return config.auxiliary.question_period if isinstance(config.auxiliary, MetaConfig) else otherwise


def _seconds(learner: Learner, batch: Batch, updates: int, stop: threading.Event) -> float:
    """Mean seconds per update."""
    start = time.perf_counter()
    for _ in range(updates):
        if stop.is_set():
            raise StopRequested
        learner.step(batch)
    return (time.perf_counter() - start) / updates


def measure_memory(config: TrainConfig, stop: threading.Event) -> dict[str, float]:
    """Peak resident memory in MB of a learner with `reverse_gvf`, by K."""
    peaks = {}
    for interval in MEMORY_INTERVALS:
        settings = config.with_task("reverse_gvf", meta_interval=interval)
        peaks[str(interval)] = measure_in_processes(_peak, (settings,), 1, stop)[0]
    return peaks


def _peak(config: TrainConfig) -> float:
    """Peak resident memory of this process in MB after two windows of updates."""
    keep_freed_memory()
    batch, spec = play_batch(config, num_envs=16)
    learner = Learner(config, spec)
    for _ in range(2 * config.auxiliary.meta_interval + 1):
        learner.step(batch)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 2**10
