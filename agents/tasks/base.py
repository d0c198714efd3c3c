"""The contract of an auxiliary task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor, nn

from agents.batch import Batch
from configs.train import TaskConfig
from envs.stream import EnvSpec


@dataclass(frozen=True)
class Scene:
    """What a task sees besides its own predictions."""

    batch: Batch
    observations: Tensor
    """[T + 1, B, S * C, H, W] uint8"""
    questions: tuple[Tensor, ...] = ()
    """What `AuxiliaryTask.ask` answered."""


@dataclass(frozen=True)
class TaskLoss:
    """What a task asks the learner to minimise; the learner weighs, masks and sums it."""

    loss: Tensor
    """[T, B] per step."""
    mask: Tensor
    """[T, B] bool, the steps that count."""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """Scalars to log."""
    histograms: dict[str, Tensor] = field(default_factory=dict)
    """Collections of numbers to log."""


class AuxiliaryTask(nn.Module, ABC):
    """A module that owns its heads and judges what they predict from the shared torso's features.

    A task may own a question network as well. Its parameters are phi: the loss never reaches them. If `learns_questions`, they
    follow the meta-gradient; if not they stay as they were drawn.
    """

    learns_questions = False

    def __init__(self, weight: float):
        super().__init__()
        self.weight = weight
        """Of the loss, in the learner's sum."""
        self.questions: nn.Module | None = None

    @classmethod
    @abstractmethod
    def build(cls, config: TaskConfig, spec: EnvSpec, num_features: int) -> AuxiliaryTask:
        """The task for a game and a torso with `num_features` outputs."""

    @abstractmethod
    def predict(self, features: Tensor) -> Tensor:
        """The heads' outputs [T + 1, B, ...] from the features [T + 1, B, F]."""

    @abstractmethod
    def loss(self, prediction: Tensor, fixed: Tensor, scene: Scene) -> TaskLoss:
        """What is wrong with `prediction`.

        `fixed` has the same values and no gradient: targets that bootstrap take them from it.
        """

    def ask(self, pixels: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """The outputs of the question network, if there is one, for `pixels` [T + 1, B, S * C, H, W] from `Agent.see`."""
        return ()

    def pictures(self, prediction: Tensor, pixels: Tensor, scene: Scene) -> dict[str, np.ndarray]:
        """Images [H, W, 3] uint8 that show what the task is about; `pixels` are the observations as networks see them."""
        return {}
