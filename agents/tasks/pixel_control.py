"""Pixel control (Jaderberg et al. 2017): n-step Q-learning of the change of each cell of the image."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agents.batch import Batch
from agents.initialisation import HEAD_GAIN, RELU_GAIN, orthogonal
from agents.metrics import mean
from agents.returns import lambda_returns
from agents.tasks.base import AuxiliaryTask, TaskInputs, TaskLoss
from configs.errors import ConfigError
from configs.tasks import PixelControlConfig
from envs.stream import EnvSpec

CELLS = 20
"""Rows and columns of the grid: the deconvolution maps 9 x 9 to 20 x 20."""


def pixel_changes(observations: Tensor, channels: int) -> Tensor:
    """Pseudo-rewards [T, B, 20, 20]: mean absolute change in [0, 1] of each cell's pixels between successive observations.

    The newest frame is the last `channels` of an observation [T + 1, B, S * C, H, W]. Pixels beyond a multiple of 20 are
    cropped, evenly on both sides.
    """
    newest = observations[:, :, -channels:] / 255
    sides = []
    for length in newest.shape[-2:]:
        cell = max(1, length // CELLS)
        margin = (length - cell * CELLS) // 2
        sides.append((cell, margin))
    (high, top), (wide, left) = sides
    cropped = newest[..., top : top + high * CELLS, left : left + wide * CELLS]
    change = (cropped[1:] - cropped[:-1]).abs().mean(2)
    return F.avg_pool2d(change, (high, wide))


class PixelControl(AuxiliaryTask):
    """A dueling deconvolution head for Q^c(s, a) of every cell c.

    loss = sum_c (G_t^c - Q^c(s_t, a_t))^2 / 2, with G^c the n-step return of `q_targets`.
    """

    Config = PixelControlConfig

    def __init__(self, weight: float, discount: float, spec: EnvSpec, num_features: int):
        super().__init__(weight)
        self._discount = discount
        self._channels = spec.frame_shape[0]
        self.linear = nn.Linear(num_features, 9 * 9 * 32)
        self.deconv = nn.ConvTranspose2d(32, 1 + spec.num_actions, 4, 2)
        orthogonal(self.linear, RELU_GAIN)
        orthogonal(self.deconv, HEAD_GAIN)

    @classmethod
    def build(cls, config: PixelControlConfig, spec: EnvSpec, num_features: int) -> PixelControl:
        if min(spec.frame_shape[1:]) < CELLS:
            raise ConfigError(f"pixel control needs frames of at least {CELLS} x {CELLS} pixels; choose another task or game")
        return cls(config.pixel_control_weight, config.pixel_control_discount, spec, num_features)

    def predict(self, features: Tensor, batch: Batch) -> Tensor:
        """Q [T + 1, B, A, 20, 20] = value + advantage - mean over actions of the advantage."""
        hidden = F.relu(self.linear(features.flatten(0, 1))).unflatten(1, (32, 9, 9))
        value, advantage = self.deconv(hidden).tensor_split([1], dim=1)
        return (value + advantage - advantage.mean(1, keepdim=True)).unflatten(0, features.shape[:2])

    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        batch = inputs.batch
        reward = pixel_changes(inputs.observations, self._channels)
        target = q_targets(reward, self._discount * batch.discount, batch.valid, fixed)
        taken = prediction[:-1].gather(2, batch.action[..., None, None, None].expand(-1, -1, 1, CELLS, CELLS)).squeeze(2)
        metrics = {
            "auxiliary/pixel_change": mean(reward, batch.valid),
            "auxiliary/q": mean(taken, batch.valid),
        }
        return TaskLoss(0.5 * ((taken - target) ** 2).sum((-2, -1)), batch.valid, metrics)

    def pictures(self, prediction: Tensor, pixels: Tensor, inputs: TaskInputs) -> dict[str, np.ndarray]:
        from agents.tasks.pictures import draw_maps

        reward = pixel_changes(inputs.observations, self._channels)
        q = prediction.max(2).values
        frames = inputs.observations[:, 0, -self._channels :]
        return {"pixel_control": draw_maps(frames[:-1], {"change": reward[:, 0], "max Q": q[:-1, 0]})}


def q_targets(reward: Tensor, discount: Tensor, valid: Tensor, q: Tensor) -> Tensor:
    """G_{t-1} = r_t + gamma_t G_t [T, B, ...], bootstrapped from max_a Q at the end of the unroll and at truncations.

    Shapes: `reward` [T, B, ...], `discount` and `valid` [T, B], `q` [T + 1, B, A, ...] without gradient.
    """
    max_q = q.max(2).values
    continues = torch.cat([valid[1:], torch.zeros_like(valid[:1])])
    discount, lambda_t = (x.to(reward.dtype)[(..., *[None] * (reward.dim() - 2))] for x in (discount, continues))
    return lambda_returns(reward, discount, max_q[1:], lambda_t)
