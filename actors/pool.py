"""The interface between the learner and a pool of actors."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from actors.trajectory import Trajectory
from agents.batch import Batch
from envs.stream import EnvSpec, Episode


@dataclass
class PoolReport:
    """Episodes and times since the last report, for the metrics."""

    episodes: list[Episode] = field(default_factory=list)
    env_seconds: float = 0.0
    inference_seconds: float = 0.0
    rollout_seconds: float = 0.0
    """Time in rollouts, summed over actors."""
    wait_seconds: float = 0.0
    """Time for which the learner waited for trajectories."""
    collate_seconds: float = 0.0

    def add(self, trajectory: Trajectory) -> None:
        self.episodes += trajectory.episodes
        self.env_seconds += trajectory.cost.env_seconds
        self.inference_seconds += trajectory.cost.inference_seconds
        self.rollout_seconds += trajectory.cost.seconds

    def merge(self, other: PoolReport) -> None:
        for item in fields(PoolReport):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass(frozen=True)
class PoolHealth:
    alive: int
    restarted: int
    memory_bytes: int
    """Resident memory of the actor processes."""


def rank_seed(seed: int, rank: int, *numbers: int) -> int:
    """Seed for the games of a rank; `numbers` distinguish its actors."""
    return int(np.random.SeedSequence([seed, *numbers, *([rank] if rank else [])]).generate_state(1)[0])


class ActorPool(Protocol):
    """A source of batches; the serial pool plays in process, the Ray pool in processes of their own."""

    spec: EnvSpec

    def next_batch(self) -> Batch:
        """The next batch [T, B] of this rank, in the order in which trajectories were completed."""
        ...

    def publish(self, weights: Tensor, version: int) -> None:
        """Use `weights` for every rollout that starts from now on."""
        ...

    def report(self) -> PoolReport:
        """The report since the last call."""
        ...

    def health(self) -> PoolHealth: ...

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values for a checkpoint."""
        ...

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None: ...

    def close(self) -> None: ...
