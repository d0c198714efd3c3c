"""Convolutional torsos: stacked pixels in, a feature vector out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RELU_GAIN = math.sqrt(2)


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Orthogonal weights and zero biases.

    With PyTorch's own initialisation the features hardly differ between states, and Pong is not learnt at all.
    """
    for name, parameter in layer.named_parameters(recurse=False):
        if "bias" in name:
            nn.init.zeros_(parameter)
        else:
            nn.init.orthogonal_(parameter, gain)


class PixelConv(nn.Conv2d):
    """A convolution over bytes: the division by 255 is done on its few weights, not on the many pixels."""

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(input, self.weight / 255, self.bias, self.stride, self.padding)


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside an identity."""

    def __init__(self, channels: int):
        super().__init__()
        self.convs = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convs(x)


def _shallow(channels: int) -> tuple[nn.Sequential, int]:
    convs = nn.Sequential(PixelConv(channels, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU())
    return convs, 256


def _nature(channels: int) -> tuple[nn.Sequential, int]:
    convs = nn.Sequential(
        PixelConv(channels, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
    )
    return convs, 512


def _deep(channels: int) -> tuple[nn.Sequential, int]:
    stages: list[nn.Module] = []
    for i, width in enumerate((16, 32, 32)):
        conv = PixelConv(channels, width, 3, padding=1) if i == 0 else nn.Conv2d(channels, width, 3, padding=1)
        stages += [conv, nn.MaxPool2d(3, 2, padding=1), ResidualBlock(width), ResidualBlock(width)]
        channels = width
    return nn.Sequential(*stages, nn.ReLU()), 256


TORSOS = {"shallow": _shallow, "nature": _nature, "deep": _deep}


class Torso(nn.Module):
    """Stacked frames [N, C, H, W] uint8 -> features [N, F]; `shallow`, `nature` or `deep`."""

    def __init__(self, name: str, observation_shape: tuple[int, int, int]):
        super().__init__()
        self.convs, self.num_features = TORSOS[name](observation_shape[0])
        with torch.no_grad():
            flat = self.convs(torch.zeros(1, *observation_shape)).numel()
        self.linear = nn.Linear(flat, self.num_features)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                orthogonal(module, RELU_GAIN)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> Tensor:
        return F.relu(self.linear(self.convs(pixels.float()).flatten(1)))
