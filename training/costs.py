"""What a rollout and an update cost on this machine, and the layout of a run that follows."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from actors.layout import Costs, Layout, choose_layout
from actors.rollout import RolloutWorker
from actors.trajectory import join
from agents.batch import Batch
from configs.tasks import MetaConfig
from configs.train import TrainConfig
from learners.learner import Learner, choose_device
from training.progress import tell

FEW_GAMES, MANY_GAMES = 4, 16
"""Games of the measured rollouts."""
REPETITIONS = 2
"""Of which the fastest counts."""
WINDOW_FACTOR, LONG_WINDOW = 1.25, 5
"""Cost of an update in a long window of the meta-gradient, whose graphs no cache holds, relative to one in a window of one."""
EXTREMES = [
    Costs(total * share, total * (1 - share), bytes_per_update)
    for total, share, bytes_per_update in itertools.product((5e-4, 5e-3), (0.1, 0.3, 0.5, 0.7, 0.9), (2e6, 2e7))
]
"""Costs between which most lie: if all of them give the same layout, nothing needs to be measured."""


def layout_for(
    config: TrainConfig,
    cores: int,
    measure: Callable[[TrainConfig], Costs] | None = None,
    gpus: int | None = None,
    cores_here: int = 0,
) -> Layout:
    """The layout of a run; measures its costs if they matter.

    `cores` and `gpus` (by default this machine's) are those that it may use, `cores_here` those of the launching machine in a
    cluster.
    """
    if choose_device(config.learner.device).type != "cuda":
        gpus = 0
    elif gpus is None:
        gpus = torch.cuda.device_count()
    possible = {choose_layout(config, costs, cores, gpus, cores_here) for costs in EXTREMES}
    if len(possible) == 1:
        return possible.pop()
    tell("measuring what a rollout and an update cost")
    return choose_layout(config, (measure or measure_costs)(config), cores, gpus, cores_here)


def measure_costs(config: TrainConfig) -> Costs:
    """Processor seconds of rollouts and updates, which hardly depend on the load of the machine; takes a few seconds.

    Measured on one core, as each rank or actor has. The window of the meta-gradient is shortened to one update.
    """
    unroll, batch_size = config.learner.unroll, min(config.learner.batch_size, MANY_GAMES)
    task = config.auxiliary
    small = replace(
        config,
        learner=replace(config.learner, batch_size=batch_size, learners=1),
        auxiliary=replace(task, meta_interval=1, meta_period=0) if isinstance(task, MetaConfig) else task,
        run=replace(config.run, frames=10**9),
    )
    with ExitStack() as stack:
        stack.enter_context(on_one_core())
        workers = [RolloutWorker(small, games, seed=0) for games in (FEW_GAMES, MANY_GAMES)]
        for worker in workers:
            stack.callback(worker.close)
        learner = Learner(small, workers[0].spec)
        few, many = (_seconds_of_step(worker, learner, unroll) for worker in workers)
        step_overhead, step = _line((FEW_GAMES, few), (MANY_GAMES, many))
        trajectory = workers[1].rollout()
        sizes = sorted({max(1, batch_size // 2), batch_size})
        points = [(unroll * size, _seconds_of_update(learner, join([(trajectory, slice(0, size))]))) for size in sizes]
    update_overhead, update = _line(points[0], points[-1])
    size = sum(parameter.numel() * parameter.element_size() for parameter in learner.task.parameters())
    size += learner.weights().numel() * 4
    sums = 1.0
    if isinstance(task, MetaConfig):
        interval, period = task.meta_interval, task.question_period
        sums += (interval + 1) / period
        # Outside the window an update costs about a third.
        factor = interval / period + (1 - interval / period) / 3
        factor *= 1 + (WINDOW_FACTOR - 1) * min(1.0, (interval - 1) / (LONG_WINDOW - 1))
        update, update_overhead = factor * update, factor * update_overhead
    kept = sum(tensor.nbytes for tensor in learner.state_dict().values())
    return Costs(step, update, sums * size, step_overhead, update_overhead, kept)


@contextmanager
def on_one_core() -> Iterator[None]:
    """Context in which this thread, and threads that it starts, run on one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _seconds_of_step(worker: RolloutWorker, learner: Learner, unroll: int) -> float:
    """Of all environments of a worker together, in the fastest of some rollouts."""
    worker.set_weights(learner.weights(), learner.version)
    return min(_timed(worker.rollout) for _ in range(REPETITIONS)) / unroll


def _seconds_of_update(learner: Learner, batch: Batch) -> float:
    return min(_timed(lambda: learner.step(batch)) for _ in range(REPETITIONS))


def _timed(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _line(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Intercept and slope, neither negative, of the line through two points (x, y), or through one and the origin."""
    (x, y), (end_x, end_y) = first, second
    slope = (end_y - y) / (end_x - x) if end_x > x else math.inf
    slope = max(0.0, min(slope, end_y / end_x))
    return end_y - slope * end_x, slope
