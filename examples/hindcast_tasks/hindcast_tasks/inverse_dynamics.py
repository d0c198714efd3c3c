"""Inverse dynamics (Pathak et al. 2017): which action led from one observation to the next?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agents.batch import Batch
from agents.initialisation import HEAD_GAIN, RELU_GAIN, orthogonal
from agents.metrics import mean
from agents.tasks import AuxiliaryTask, TaskInputs, TaskLoss
from envs.stream import EnvSpec


@dataclass(frozen=True)
class InverseDynamicsConfig:
    inverse_dynamics_weight: float = 0.1
    """Weight of the loss, which is a cross-entropy per step."""


class InverseDynamics(AuxiliaryTask):
    Config = InverseDynamicsConfig

    def __init__(self, config: InverseDynamicsConfig, num_features: int, num_actions: int):
        super().__init__(config.inverse_dynamics_weight)
        self.hidden = nn.Linear(2 * num_features, 128)
        self.head = nn.Linear(128, num_actions)
        orthogonal(self.hidden, RELU_GAIN)
        orthogonal(self.head, HEAD_GAIN)

    @classmethod
    def build(cls, config: InverseDynamicsConfig, spec: EnvSpec, num_features: int) -> InverseDynamics:
        return cls(config, num_features, spec.num_actions)

    def predict(self, features: Tensor, batch: Batch) -> Tensor:
        """Logits [T, B, A] from the features before and after each step."""
        return self.head(F.relu(self.hidden(torch.cat([features[:-1], features[1:]], dim=-1))))

    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        action = inputs.batch.action
        loss = F.cross_entropy(prediction.flatten(0, 1), action.flatten(), reduction="none").view_as(inputs.batch.reward)
        # An action that was ignored because the game had ended led nowhere; one that lost a life led to another episode.
        mask = inputs.batch.valid & ~inputs.batch.first[1:]
        correct = (prediction.argmax(-1) == action).float()
        return TaskLoss(loss, mask, {"auxiliary/accuracy": mean(correct, mask)})
