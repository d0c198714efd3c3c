"""Latent self-prediction (SPR, Schwarzer et al. 2021): predict a momentum encoder's latents of future observations."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agents.batch import Batch
from agents.initialisation import RELU_GAIN, orthogonal
from agents.metrics import mean
from agents.tasks import AuxiliaryTask, TaskInputs, TaskLoss
from configs.settings import Setting
from envs.stream import EnvSpec


@dataclass(frozen=True)
class SelfPredictionConfig:
    self_prediction_weight: float = 0.02
    """Weight of the loss: 1 - cosine similarity, averaged over the K predictions of a step."""
    prediction_steps: Annotated[int, Setting(positive=True, most=2**8)] = 3
    """Steps that the latent is rolled out for (K); less than --unroll."""
    projection_size: Annotated[int, Setting(positive=True, most=2**14)] = 128
    """Width of the projections that are compared."""
    target_momentum: Annotated[float, Setting(most=1)] = 0.99
    """Share of the target network that an update keeps."""


class SelfPrediction(AuxiliaryTask):
    """z_{t+k} = h(z_{t+k-1}, a_{t+k-1}) from z_t, the features; q(g(z_{t+k})) predicts g_m(torso_m(o_{t+k})), k = 1 ... K.

    torso_m and g_m, momentum averages of the torso and of g, are the target network.
    """

    Config = SelfPredictionConfig
    target: nn.Sequential

    def __init__(self, config: SelfPredictionConfig, num_features: int, num_actions: int):
        super().__init__(config.self_prediction_weight)
        self._steps, self._momentum, self._num_actions = config.prediction_steps, config.target_momentum, num_actions
        self.transition = nn.Sequential(nn.Linear(num_features + num_actions, 256), nn.ReLU(), nn.Linear(256, num_features))
        self.projection = nn.Linear(num_features, config.projection_size)
        self.predictor = nn.Linear(config.projection_size, config.projection_size)
        for layer in (self.transition[0], self.transition[2], self.projection, self.predictor):
            orthogonal(layer, RELU_GAIN if layer is self.transition[0] else 1.0)

    @classmethod
    def build(cls, config: SelfPredictionConfig, spec: EnvSpec, num_features: int) -> SelfPrediction:
        return cls(config, num_features, spec.num_actions)

    def attach(self, torso: nn.Module) -> None:
        self.target = nn.Sequential(copy.deepcopy(torso), copy.deepcopy(self.projection)).requires_grad_(False)

    def after_update(self, torso: nn.Module) -> None:
        online = [*torso.parameters(), *self.projection.parameters()]
        torch._foreach_lerp_(list(self.target.parameters()), online, 1 - self._momentum)

    def predict(self, features: Tensor, batch: Batch) -> Tensor:
        """Predictions [T, B, K, D]; those that would pass the end of the unroll repeat the last action and are masked."""
        time = torch.arange(len(batch.action), device=features.device)
        actions = F.one_hot(batch.action, self._num_actions).to(features.dtype)
        latent, rollout = features[:-1], []
        for k in range(self._steps):
            action = actions[(time + k).clamp(max=len(time) - 1)]
            latent = F.relu(latent + self.transition(torch.cat([latent, action], -1)))
            rollout.append(latent)
        return self.predictor(self.projection(torch.stack(rollout, 2)))

    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        batch, steps = inputs.batch, len(prediction)
        with torch.no_grad():
            latents = self.target(inputs.pixels.flatten(0, 1)).unflatten(0, inputs.pixels.shape[:2])
        follows = batch.valid & ~batch.first[1:]  # [T, B], observation t + 1 is of the episode of observation t.
        similarity, within = [], torch.ones_like(follows)
        reached = []
        for k in range(self._steps):
            ahead = torch.arange(k, steps + k, device=within.device).clamp(max=steps - 1)
            within = within & follows[ahead] & (torch.arange(steps, device=within.device) + k < steps)[:, None]
            reached.append(within)
            similarity.append(F.cosine_similarity(prediction[:, :, k], latents[ahead + 1], dim=-1))
        counted = torch.stack(reached, -1)
        loss = ((1 - torch.stack(similarity, -1)) * counted).sum(-1) / self._steps
        return TaskLoss(loss, counted[..., 0], {"auxiliary/cosine_similarity": mean(similarity[0], counted[..., 0])})
