"""The actor pool in process: deterministic, bit for bit."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from actors.pool import PoolHealth, PoolReport, rank_seed
from actors.rollout import RolloutWorker
from actors.trajectory import Collator
from agents.batch import Batch
from configs.train import TrainConfig


class SerialPool:
    """One rollout worker with an environment for each trajectory of a batch, which the newest weights collect (lag 0)."""

    def __init__(self, config: TrainConfig, rank: int = 0):
        batch_size = config.learner.batch_size // config.learner.ranks
        seed = rank_seed(config.run.seed, rank) if rank else config.run.seed
        self._worker = RolloutWorker(config, batch_size, seed)
        self.spec = self._worker.spec
        self._collator = Collator(batch_size)
        self._report = PoolReport()

    def next_batch(self) -> Batch:
        start = time.perf_counter()
        trajectory = self._worker.rollout()
        played = time.perf_counter()
        self._collator.add(trajectory)
        batch = self._collator.batch()
        self._report.add(trajectory)
        self._report.wait_seconds += played - start
        self._report.collate_seconds += time.perf_counter() - played
        return batch

    def publish(self, weights: Tensor, version: int) -> None:
        self._worker.set_weights(weights, version)

    def report(self) -> PoolReport:
        report, self._report = self._report, PoolReport()
        return report

    def health(self) -> PoolHealth:
        return PoolHealth(alive=1, restarted=0, memory_bytes=0)

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self._worker.state_dict()

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        self._worker.load_state_dict(tensors, values)

    def close(self) -> None:
        self._worker.close()
