"""Throughput of training with each auxiliary task, against the ceiling that the costs of its parts allow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agents.threads import set_threads
from configs.train import TrainConfig
from learners.allocator import keep_freed_memory
from learners.learner import Learner
from studies.benchmark.measuring import PROCESSES, measure_in_processes
from studies.benchmark.task_costs import period, play_batch
from training.costs import layout_for
from training.progress import tell


def measure_task_throughput(
    config: TrainConfig,
    tasks: Sequence[str],
    cores: int,
    playing: float,
    measure_training: Callable[[TrainConfig], dict[str, float]],
    stop: threading.Event,
) -> dict[str, dict[str, Any]]:
    """For each task frames/s with the layout chosen and with one learner, and their share of the ceiling.

    `playing` are core-seconds per frame of emulation and inference.
    """
    found: dict[str, dict[str, Any]] = {}
    for number, task in enumerate(tasks, 1):
        of_task = config.with_task(task)
        layout = layout_for(of_task, cores)
        tell(f"measuring {task}, task {number} of {len(tasks)}: one learner, then {layout.describe()}")
        barrier = PROCESSES.Barrier(cores)
        learning = measure_in_processes(_learner_seconds_per_frame, (of_task, barrier), cores, stop)
        ceiling = cores / (playing + sum(learning) / len(learning))
        alone = measure_training(_with_one_learner(of_task))["frames_per_second"]
        only_one = layout.learners == 1 and layout.pool == "ray"
        speed = alone if only_one else measure_training(layout.applied_to(of_task))["frames_per_second"]
        found[task] = {
            "frames_per_second": speed,
            "ceiling_frames_per_second": ceiling,
            "efficiency": speed / ceiling,
            "learners": layout.learners,
            "layout": layout.describe(),
            "one_learner_frames_per_second": alone,
            "one_learner_efficiency": alone / ceiling,
        }
    return found


def _with_one_learner(config: TrainConfig) -> TrainConfig:
    """The run as it was before there were several learners: one, and actors on the other cores."""
    return replace(config, learner=replace(config.learner, learners=1), actors=replace(config.actors, pool="ray"))


def _learner_seconds_per_frame(config: TrainConfig, barrier: Any) -> float:
    """Of collation and updates on one thread, averaged over a period of the meta-gradient."""
    keep_freed_memory()
    set_threads(1)
    batch, spec = play_batch(config, min(16, config.learner.batch_size))
    learner = Learner(config, spec)
    updates = period(config, otherwise=8)
    for _ in range(1 + period(config, otherwise=1)):
        learner.step(batch)
    barrier.wait()
    start = time.perf_counter()
    for _ in range(updates):
        learner.step(batch)
        learner.weights()
    return (time.perf_counter() - start) / (updates * batch.steps * spec.frames_per_step)
