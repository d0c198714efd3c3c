"""What a rollout and an update cost on this machine, and the layout of a run that follows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from actors.layout import Costs, Layout, choose_layout
from actors.rollout import RolloutWorker
from actors.trajectory import Collator
from configs.tasks import MetaConfig
from configs.train import TrainConfig
from learners.learner import Learner, choose_device
from training.progress import tell

MAX_GAMES = 16
"""Games of the measurement: enough for the cost per step to be that of a full batch."""
EXTREMES = [
    Costs(total * share, total * (1 - share), bytes_per_update)
    for total, share, bytes_per_update in itertools.product((5e-4, 5e-3), (0.1, 0.3, 0.5, 0.7, 0.9), (2e6, 2e7))
]
"""Costs between which most lie: if all of them give the same layout, nothing needs to be measured."""


def layout_for(config: TrainConfig, cores: int, measure: Callable[[TrainConfig], Costs] | None = None) -> Layout:
    """The layout of a run on a number of cores and the GPUs of this machine; measures its costs if they matter."""
    gpus = torch.cuda.device_count() if choose_device(config.learner.device).type == "cuda" else 0
    possible = {choose_layout(config, costs, cores, gpus) for costs in EXTREMES}
    if len(possible) == 1:
        return possible.pop()
    tell("measuring what a rollout and an update cost")
    return choose_layout(config, (measure or measure_costs)(config), cores, gpus)


def measure_costs(config: TrainConfig) -> Costs:
    """Seconds per environment step of a rollout and of an update on one thread; takes a second or two.

    The window of the meta-gradient is shortened to one update, which costs about as much per update as a longer one.
    """
    games = min(config.learner.batch_size, MAX_GAMES)
    task = config.auxiliary
    small = replace(
        config,
        learner=replace(config.learner, batch_size=games, learners=1),
        auxiliary=replace(task, meta_interval=1, meta_period=0) if isinstance(task, MetaConfig) else task,
        run=replace(config.run, frames=10**9),
    )
    worker = RolloutWorker(small, games, seed=0)
    try:
        learner = Learner(small, worker.spec)
        collator = Collator(games)
        seconds: dict[str, list[float]] = {"rollout": [], "update": []}
        for _ in range(3):
            worker.set_weights(learner.weights(), learner.version)
            start = time.perf_counter()
            collator.add(worker.rollout())
            played = time.perf_counter()
            learner.step(collator.batch())
            seconds["rollout"].append(played - start)
            seconds["update"].append(time.perf_counter() - played)
    finally:
        worker.close()
    steps = games * config.learner.unroll
    size = sum(parameter.numel() * parameter.element_size() for parameter in learner.task.parameters())
    size += learner.weights().numel() * 4
    sums = 1.0
    update = seconds["update"][-1]
    if isinstance(task, MetaConfig):
        interval, period = task.meta_interval, task.question_period
        sums += (interval + 1) / period
        # Outside the window an update costs about a third.
        update *= interval / period + (1 - interval / period) / 3
    return Costs(min(seconds["rollout"][1:]) / steps, update / steps, sums * size)
