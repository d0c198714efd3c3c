"""The contract of an auxiliary task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from agents.agent import Unroll
from agents.batch import Batch


class TaskLoss(NamedTuple):
    """What a task asks the learner to minimise; the learner masks, weighs and sums it."""

    loss: Tensor
    """[T, B] per step."""
    mask: Tensor
    """[T, B] bool, the steps that count."""
    metrics: dict[str, Tensor]
    """Scalars to log, detached."""


class AuxiliaryTask(nn.Module, ABC):
    """A module that owns its heads and judges the features they get from the shared torso."""

    @abstractmethod
    def forward(self, unroll: Unroll, batch: Batch) -> TaskLoss:
        """What the task makes of an unroll."""
