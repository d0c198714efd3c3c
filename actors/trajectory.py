"""Trajectories, and how they become batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agents.batch import Batch
from envs.stream import Episode

COLUMN_AXIS = {
    "stack": 0, "frames": 1, "first": 1, "action": 1, "reward": 1, "discount": 1, "valid": 1, "logits": 1, "core_state": 0,
}  # fmt: skip
"""Where the games stand in each array; see `Batch` for shapes and meanings."""


@dataclass(frozen=True)
class RolloutCost:
    """What a rollout took: seconds in all and on what, and the resident memory of the process that made it."""

    env_seconds: float
    inference_seconds: float
    seconds: float
    memory_bytes: int


@dataclass
class Trajectory:
    """T steps of N games, as `Batch` but in NumPy; made with the weights of one version."""

    stack: np.ndarray
    frames: np.ndarray
    first: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    valid: np.ndarray
    logits: np.ndarray
    core_state: np.ndarray
    version: int
    episodes: list[Episode]
    cost: RolloutCost

    @property
    def columns(self) -> int:
        return self.action.shape[1]


class Collator:
    """Cuts and joins trajectories along their games into batches of exactly B, in the order in which they came."""

    def __init__(self, batch_size: int):
        self._batch_size = batch_size
        self._waiting: deque[tuple[Trajectory, int]] = deque()
        self._columns = 0

    @property
    def ready(self) -> bool:
        return self._columns >= self._batch_size

    def add(self, trajectory: Trajectory) -> None:
        self._waiting.append((trajectory, 0))
        self._columns += trajectory.columns

    def batch(self) -> Batch:
        missing = self._batch_size
        pieces: list[tuple[Trajectory, slice]] = []
        while missing:
            trajectory, start = self._waiting.popleft()
            stop = min(start + missing, trajectory.columns)
            pieces.append((trajectory, slice(start, stop)))
            missing -= stop - start
            if stop < trajectory.columns:
                self._waiting.appendleft((trajectory, stop))
        self._columns -= self._batch_size
        return join(pieces)


def join(pieces: Sequence[tuple[Trajectory, slice]]) -> Batch:
    """One batch from some columns of some trajectories."""
    arrays = {
        name: np.concatenate([getattr(t, name)[(slice(None),) * axis + (columns,)] for t, columns in pieces], axis)
        for name, axis in COLUMN_AXIS.items()
    }
    versions = np.concatenate([np.full(columns.stop - columns.start, t.version) for t, columns in pieces])
    return Batch(**{name: torch.from_numpy(array) for name, array in arrays.items()}, version=torch.from_numpy(versions))
