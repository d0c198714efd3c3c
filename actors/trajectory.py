"""Trajectories, and how they become batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agents.batch import Batch
from envs.fields import FIELDS, StepFields
from envs.stream import Episode


@dataclass(frozen=True)
class RolloutCost:
    """What a rollout took: seconds in all and on what, and the resident memory of the process that made it."""

    env_seconds: float
    inference_seconds: float
    seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class Trajectory(StepFields[np.ndarray]):
    """T steps of N environments."""

    version: int | np.ndarray
    """Of the weights that it was made with; [N] where environments differ."""
    episodes: list[Episode]
    cost: RolloutCost

    @property
    def columns(self) -> int:
        return self.action.shape[1]


class Collator:
    """Cuts and joins trajectories along their games into batches of exactly B, in the order in which they came.

    `pin_memory` puts the batches into memory from which a GPU copies without waiting.
    """

    def __init__(self, batch_size: int, pin_memory: bool = False):
        self._batch_size = batch_size
        self._pin_memory = pin_memory
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
        return join(pieces, self._pin_memory)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What has been added and not yet returned; empty if there is nothing."""
        pieces = [(trajectory, slice(start, trajectory.columns)) for trajectory, start in self._waiting]
        return {name: getattr(joined, name) for joined in ([join(pieces)] if pieces else []) for name in (*FIELDS, "version")}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self._waiting.clear()
        self._columns = 0
        if state:
            arrays = {name: state[name].numpy() for name in FIELDS}
            self.add(Trajectory(**arrays, version=state["version"].numpy(), episodes=[], cost=RolloutCost(0.0, 0.0, 0.0, 0)))


def join(pieces: Sequence[tuple[Trajectory, slice]], pin_memory: bool = False) -> Batch:
    """One batch from some environments of some trajectories."""

    def concatenated(name: str, axis: int) -> torch.Tensor:
        parts = [getattr(trajectory, name)[(slice(None),) * axis + (columns,)] for trajectory, columns in pieces]
        if not pin_memory:
            return torch.from_numpy(np.concatenate(parts, axis))
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        joined = torch.empty(shape, dtype=torch.from_numpy(parts[0][:0].copy()).dtype, pin_memory=True)
        np.concatenate(parts, axis, out=joined.numpy())
        return joined

    arrays = {name: concatenated(name, field.env_axis) for name, field in FIELDS.items()}
    versions = np.concatenate([np.broadcast_to(t.version, t.columns)[columns] for t, columns in pieces])
    return Batch(**arrays, version=torch.from_numpy(versions))
