"""Batches on their way to the learner's device: the next one is copied while the learner computes on the last."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from actors.pool import ActorPool, PoolHealth, PoolReport
from agents.batch import Batch


class Preparing(ActorPool, Protocol):
    """A pool whose next batch may be there before it is asked for."""

    def batch_ready(self) -> bool:
        """Whether `next_batch` would return without waiting."""
        ...


@dataclass(frozen=True)
class Copy:
    """A batch that is being copied to the device."""

    source: Batch
    """In pinned memory, without which the copy would not be asynchronous."""
    batch: Batch
    done: Any
    """Event of the copying stream."""


class StagedPool:
    """A pool whose batches are on `device`.

    The next batch, if its trajectories have arrived, is copied on a stream of its own while the learner computes on the one
    that was returned. One batch is ahead at most, so the policy lags behind by at most one update more.
    """

    def __init__(self, pool: Preparing, device: torch.device):
        self._pool = pool
        self._device = device
        self._module = torch.get_device_module(device)
        self._stream = self._module.Stream(device)
        self._next: Copy | None = None
        self.spec = pool.spec

    def next_batch(self) -> Batch:
        copy, self._next = self._next or self._start(self._pool.next_batch()), None
        if self._pool.batch_ready():
            self._next = self._start(self._pool.next_batch())
        stream = self._module.current_stream(self._device)
        stream.wait_event(copy.done)
        for item in fields(copy.batch):
            # The memory belongs to the copying stream, which may not reuse it before the learner has done with it.
            getattr(copy.batch, item.name).record_stream(stream)
        return copy.batch

    def _start(self, batch: Batch) -> Copy:
        with self._module.stream(self._stream):
            moved = batch.to(self._device)
        return Copy(batch, moved, self._stream.record_event())

    def publish(self, weights: Tensor, version: int) -> None:
        self._pool.publish(weights, version)

    def report(self) -> PoolReport:
        return self._pool.report()

    def health(self) -> PoolHealth:
        return self._pool.health()

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """That of the pool; the batch ahead is lost with the trajectories under way."""
        return self._pool.state_dict()

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        self._pool.load_state_dict(tensors, values)

    def close(self) -> None:
        self._next = None
        self._pool.close()
