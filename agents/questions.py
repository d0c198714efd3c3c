"""The question network: what should be predicted, and over which horizon?"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from agents.initialisation import orthogonal
from agents.torsos import Torso

SPREAD = (1.0, 0.5)
"""Standard deviation, over the observations of the first batch, of what goes into the cumulants and the discounts."""
HORIZONS = (2.0, 50.0)
"""Steps, of the first and the last question before anything is learnt; the others lie between, in equal ratios."""


class QuestionNetwork(nn.Module):
    """Pixels [N, C, H, W] -> cumulants in (-1, 1) and discounts in (0, 1), each [N, d].

    Both are smooth in the parameters: c = 2/pi arctan(z), whose slope falls slowly, and gamma = sigmoid(z). With
    `standard`, the z of each cumulant is standardised over the N images: the same number in every state would be no question
    about the states, but the meta-gradient can lead there (docs/discovery.md).

    Raw images of one game differ little, and so would freshly drawn questions about them: `calibrate` scales the two last
    layers so that over some given images z has the mean and spread it should.
    """

    _centres: Tensor
    calibrated: Tensor

    def __init__(self, torso: str, observation_shape: tuple[int, int, int], num_questions: int, standard: bool):
        super().__init__()
        self._standard = standard
        self.torso = Torso(torso, observation_shape)
        self.cumulant = nn.Linear(self.torso.num_features, num_questions)
        self.discount = nn.Linear(self.torso.num_features, num_questions)
        orthogonal(self.cumulant, 1.0)
        orthogonal(self.discount, 1.0)
        shortest, longest = (math.log(horizon) for horizon in HORIZONS)
        horizons = torch.linspace(shortest, longest, num_questions).exp()
        self.register_buffer(
            "_centres", torch.stack([torch.zeros(num_questions), torch.logit(1 - 1 / horizons)]), persistent=False
        )
        self.register_buffer("calibrated", torch.tensor(False))

    @torch.no_grad()
    def calibrate(self, pixels: Tensor) -> None:
        """Over `pixels` [N, C, H, W], cumulants get mean 0 and discounts the initial horizons."""
        features = self.torso(pixels)
        for head, spread, centre in zip((self.cumulant, self.discount), SPREAD, self._centres, strict=True):
            z = head(features)
            std, mean = torch.std_mean(z, 0, correction=0)
            scale = spread / std.clamp(min=1e-6)
            head.weight.mul_(scale[:, None])
            head.bias.copy_(centre - scale * (mean - head.bias))
        self.calibrated.fill_(True)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        features = self.torso(pixels)
        z = self.cumulant(features)
        return 2 / math.pi * (standardised(z) if self._standard else z).atan(), self.discount(features).sigmoid()


def standardised(z: Tensor) -> Tensor:
    """[N, d] with mean 0 and variance 1 over N, or less where it hardly varies."""
    variance, mean = torch.var_mean(z, 0, correction=0)
    return (z - mean) / (variance + 1e-4).sqrt()
