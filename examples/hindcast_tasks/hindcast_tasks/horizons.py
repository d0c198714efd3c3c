"""Values at many horizons (Fedus et al. 2019): one head for each of several discounts of the reward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from agents.batch import Batch
from agents.initialisation import HEAD_GAIN, orthogonal
from agents.metrics import mean
from agents.returns import lambda_returns
from agents.tasks import AuxiliaryTask, TaskInputs, TaskLoss
from configs.errors import ConfigError
from configs.settings import Setting
from envs.stream import EnvSpec


@dataclass(frozen=True)
class HorizonsConfig:
    horizons_weight: float = 0.1
    """Weight of the loss: half the squared error, averaged over horizons."""
    num_horizons: Annotated[int, Setting(positive=True, most=2**10)] = 8
    """Number of horizons, spaced geometrically."""
    shortest_horizon: Annotated[float, Setting(positive=True)] = 2.0
    """Shortest horizon 1 / (1 - discount), in steps; at least 1."""
    longest_horizon: Annotated[float, Setting(positive=True)] = 200.0
    """Longest horizon, in steps."""
    horizons_lambda: Annotated[float, Setting(most=1)] = 0.9
    """Lambda of the returns that the values regress on."""

    def __post_init__(self) -> None:
        if not 1 <= self.shortest_horizon <= self.longest_horizon:
            raise ConfigError("--shortest-horizon must be at least 1 and at most --longest-horizon")


class Horizons(AuxiliaryTask):
    """Each value V_i regresses on the lambda-return of (1 - gamma_i) times the clipped reward, which lies in (-1, 1)."""

    Config = HorizonsConfig
    discounts: Tensor
    """[n]"""

    def __init__(self, config: HorizonsConfig, num_features: int):
        super().__init__(config.horizons_weight)
        self._lambda = config.horizons_lambda
        ends = (math.log(config.shortest_horizon), math.log(config.longest_horizon))
        self.register_buffer("discounts", 1 - 1 / torch.linspace(*ends, config.num_horizons).exp())
        self.values = nn.Linear(num_features, config.num_horizons)
        orthogonal(self.values, HEAD_GAIN)

    @classmethod
    def build(cls, config: HorizonsConfig, spec: EnvSpec, num_features: int) -> Horizons:
        return cls(config, num_features)

    def predict(self, features: Tensor, batch: Batch) -> Tensor:
        """Values [T + 1, B, n]."""
        return self.values(features)

    def targets(self, values: Tensor, batch: Batch) -> Tensor:
        """Returns [T, B, n] for values [T + 1, B, n] without gradient; a truncated episode bootstraps from its last value."""
        reward = batch.reward.clamp(-1, 1)[..., None] * (1 - self.discounts)
        continues = torch.cat([batch.valid[1:], torch.zeros_like(batch.valid[:1])])[..., None]
        discount = batch.discount[..., None] * self.discounts
        return lambda_returns(reward, discount, values[1:], self._lambda * continues.to(values.dtype))

    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        batch = inputs.batch
        error = prediction[:-1] - self.targets(fixed, batch)
        metrics = {
            "auxiliary/shortest_error": mean(error[..., 0].abs(), batch.valid),
            "auxiliary/longest_error": mean(error[..., -1].abs(), batch.valid),
        }
        return TaskLoss(0.5 * (error**2).mean(-1), batch.valid, metrics)
