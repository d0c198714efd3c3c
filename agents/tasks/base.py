"""The contract of an auxiliary task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from agents.batch import Batch
from agents.metrics import Metric
from agents.ranks import ONE_RANK, Ranks
from configs.tasks import NoConfig, TaskInterface
from envs.stream import EnvSpec


@dataclass(frozen=True)
class TaskInputs:
    """Inputs of a task's loss besides its own predictions."""

    batch: Batch
    observations: Tensor
    """[T + 1, B, S * C, H, W] uint8"""
    questions: tuple[Tensor, ...] = ()
    """Outputs of `AuxiliaryTask.ask`: for GVF tasks cumulants and discounts, each [T + 1, B, d]."""
    pixels: Tensor = field(default_factory=lambda: torch.empty(0))
    """[T + 1, B, S * C, H, W] float, the preprocessed observations, which torsos take; empty in `pictures`."""


@dataclass(frozen=True)
class TaskLoss:
    """Per-step loss of a task. The learner adds weight * sum(loss * mask) to IMPALA's loss."""

    loss: Tensor
    """[T, B], per step, neither masked nor weighted."""
    mask: Tensor
    """[T, B] bool, False for steps that are left out of the sum."""
    metrics: dict[str, Metric] = field(default_factory=dict)
    """Scalars to log, by tag (`agents/metrics.py`)."""
    histograms: dict[str, Tensor] = field(default_factory=dict)
    """Tensors whose distribution is logged, by tag."""


class AuxiliaryTask(nn.Module, TaskInterface, ABC):
    """A module with its own heads on the shared torso's features, and their loss.

    A task may own a question network, `questions`, with parameters phi. The task's loss has no gradient with respect to phi.
    It may own a target network, `target`, which no gradient trains either: `after_update` changes it.
    """

    Config: ClassVar[Any] = NoConfig

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.draws = cls.pictures is not AuxiliaryTask.pictures

    def __init__(self, weight: float):
        super().__init__()
        self.weight = weight
        """Factor of the loss in the learner's sum."""
        self.questions: nn.Module | None = None
        self.target: nn.Module | None = None
        self.ranks: Ranks = ONE_RANK
        """Learners that share the batch, for what depends on all of it."""

    @classmethod
    @abstractmethod
    def build(cls, config: Any, spec: EnvSpec, num_features: int) -> AuxiliaryTask:
        """Return the task for games of `spec` and a torso with `num_features` outputs; `config` is of its Config."""

    @abstractmethod
    def predict(self, features: Tensor, batch: Batch) -> Tensor:
        """Outputs of the heads, of any shape, for features [T + 1, B, F]; parameters used anywhere else are not trained."""

    @abstractmethod
    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        """Per-step loss [T, B]; `fixed` is stop_gradient(prediction), for bootstrapped targets."""

    def ask(self, pixels: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """Outputs of the question network, if there is one, for preprocessed observations `pixels` [T + 1, B, S * C, H, W]."""
        return ()

    def attach(self, torso: nn.Module) -> None:
        """Called once, before the first update, with the agent's torso: the place to copy it into `target`.

        The torso itself must not become part of the task.
        """

    def after_update(self, torso: nn.Module) -> None:
        """Called after every update of theta, without gradients; on several ranks the torso is the same on all of them.

        What it changes must be in `target`, which checkpoints hold, and be the same on all ranks.
        """

    def pictures(self, prediction: Tensor, pixels: Tensor, inputs: TaskInputs) -> dict[str, np.ndarray]:
        """Images [H, W, 3] uint8 for TensorBoard, by name; `pixels` are the preprocessed observations."""
        return {}
