"""The actor pool in process: deterministic, bit for bit."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from actors.pool import PoolHealth, PoolReport, rank_seed
from actors.rollout import RolloutWorker
from actors.trajectory import Collator
from agents.batch import Batch
from configs.train import TrainConfig

WAITING = "waiting."
"""Prefix, in a checkpoint, of trajectories that wait for their batch."""


class SerialPool:
    """One rollout worker, by default with an environment for each trajectory of a batch, so that the policy does not lag.

    More environments than that make inference on a core more efficient: a rollout then gives several batches.
    """

    def __init__(self, config: TrainConfig, rank: int = 0):
        batch_size = config.learner.batch_size // config.learner.ranks
        seed = rank_seed(config.run.seed, rank) if rank else config.run.seed
        self._worker = RolloutWorker(config, config.actors.envs_per_actor or batch_size, seed)
        self.spec = self._worker.spec
        self._collator = Collator(batch_size)
        self._report = PoolReport()

    def next_batch(self) -> Batch:
        start = time.perf_counter()
        while not self._collator.ready:
            trajectory = self._worker.rollout()
            self._collator.add(trajectory)
            self._report.add(trajectory)
        played = time.perf_counter()
        batch = self._collator.batch()
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
        tensors, values = self._worker.state_dict()
        return tensors | {f"{WAITING}{name}": value for name, value in self._collator.state_dict().items()}, values

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Raises ValueError for a state that is not of this agent and as many games."""
        self._worker.load_state_dict(tensors, values)
        waiting = {name.removeprefix(WAITING): value for name, value in tensors.items() if name.startswith(WAITING)}
        if waiting:
            columns = len(waiting["version"])
            for name, own in {"version": torch.empty(columns, dtype=torch.int64), **self._worker.like(columns)}.items():
                if (waiting[name].shape, waiting[name].dtype) != (own.shape, own.dtype):
                    raise ValueError(f"'{name}' of a waiting trajectory is {list(waiting[name].shape)}, not {list(own.shape)}")
                if not waiting[name].isfinite().all():
                    raise ValueError(f"'{name}' of a waiting trajectory is not finite")
            if not ((waiting["action"] >= 0) & (waiting["action"] < self.spec.num_actions)).all():
                raise ValueError("a waiting trajectory has actions that the game has not")
        self._collator.load_state_dict(waiting)

    def close(self) -> None:
        self._worker.close()
