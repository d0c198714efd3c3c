"""The question network: cumulants and discounts of GVFs, as functions of the observation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from agents.initialisation import orthogonal
from agents.ranks import ONE_RANK, Ranks, std_mean, var_mean
from agents.torsos import Torso

INITIAL_STD = (1.0, 0.5)
"""Standard deviation of the pre-activations of cumulants and of discounts, over the first batch, after calibration."""
INITIAL_HORIZONS = (2.0, 50.0)
"""Initial horizons 1 / (1 - gamma), in steps, of the first and the last question; the others are spaced geometrically."""


class QuestionNetwork(nn.Module):
    """Preprocessed observations [N, C, H, W] -> cumulants in (-1, 1) and discounts in (0, 1), each [N, d].

    c = 2/pi arctan(z_c), which saturates slowly, and gamma = sigmoid(z_gamma). With `normalise`, each z_c is normalised over
    the N observations: the meta-gradient can turn a cumulant into a constant, which asks nothing (docs/notes/discovery.md).

    Images of one game differ little, and so would the questions of a random network: `calibrate` rescales the two output
    layers to given means and standard deviations of z.
    """

    _initial_means: Tensor
    calibrated: Tensor

    def __init__(self, torso: str, observation_shape: tuple[int, int, int], num_questions: int, normalise: bool):
        super().__init__()
        self._normalise = normalise
        self.torso = Torso(torso, observation_shape)
        self.cumulant = nn.Linear(self.torso.num_features, num_questions)
        self.discount = nn.Linear(self.torso.num_features, num_questions)
        orthogonal(self.cumulant, 1.0)
        orthogonal(self.discount, 1.0)
        shortest, longest = (math.log(horizon) for horizon in INITIAL_HORIZONS)
        horizons = torch.linspace(shortest, longest, num_questions).exp()
        self.register_buffer(
            "_initial_means", torch.stack([torch.zeros(num_questions), torch.logit(1 - 1 / horizons)]), persistent=False
        )
        self.register_buffer("calibrated", torch.tensor(False))

    @torch.no_grad()
    def calibrate(self, pixels: Tensor, ranks: Ranks = ONE_RANK) -> None:
        """Rescale the output layers: over `pixels` [N, C, H, W] of all ranks, z then has its initial mean and deviation."""
        features = self.torso(pixels)
        for head, target_std, target_mean in zip((self.cumulant, self.discount), INITIAL_STD, self._initial_means, strict=True):
            z = head(features)
            std, mean = std_mean(z, ranks)
            scale = target_std / std.clamp(min=1e-6)
            head.weight.mul_(scale[:, None])
            head.bias.copy_(target_mean - scale * (mean - head.bias))
        self.calibrated.fill_(True)

    def forward(self, pixels: Tensor, ranks: Ranks = ONE_RANK) -> tuple[Tensor, Tensor]:
        features = self.torso(pixels)
        z = self.cumulant(features)
        return 2 / math.pi * (normalised(z, ranks) if self._normalise else z).atan(), self.discount(features).sigmoid()


def normalised(z: Tensor, ranks: Ranks = ONE_RANK) -> Tensor:
    """z [N, d] with mean 0 over the N of all ranks and variance 1, or less where the variance of z is near 1e-4 or below."""
    variance, mean = var_mean(z, ranks)
    return (z - mean) / (variance + 1e-4).sqrt()
