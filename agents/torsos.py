"""Convolutional torsos: from stacked frames to a feature vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from agents.initialisation import RELU_GAIN, orthogonal
from agents.layers import Conv2d, Linear, PixelConv2d, ReLU
from configs.errors import ConfigError
from configs.plugins import errors_named, resolve


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))), with 3 x 3 convolutions."""

    def __init__(self, channels: int):
        super().__init__()
        self.convs = nn.Sequential(
            ReLU(),
            Conv2d(channels, channels, 3, padding=1),
            ReLU(),
            Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convs(x)


def _shallow(channels: int) -> tuple[nn.Sequential, int]:
    convs = nn.Sequential(PixelConv2d(channels, 16, 8, 4), ReLU(), Conv2d(16, 32, 4, 2), ReLU())
    return convs, 256


def _nature(channels: int) -> tuple[nn.Sequential, int]:
    convs = nn.Sequential(
        PixelConv2d(channels, 32, 8, 4),
        ReLU(),
        Conv2d(32, 64, 4, 2),
        ReLU(),
        Conv2d(64, 64, 3, 1),
        ReLU(),
    )
    return convs, 512


def _deep(channels: int) -> tuple[nn.Sequential, int]:
    stages: list[nn.Module] = []
    for i, width in enumerate((16, 32, 32)):
        conv = PixelConv2d(channels, width, 3, padding=1) if i == 0 else Conv2d(channels, width, 3, padding=1)
        stages += [conv, nn.MaxPool2d(3, 2, padding=1), ResidualBlock(width), ResidualBlock(width)]
        channels = width
    return nn.Sequential(*stages, ReLU()), 256


TORSOS: dict[str, Callable[[int], tuple[nn.Sequential, int]]] = {"shallow": _shallow, "nature": _nature, "deep": _deep}


def padded_side(convs: nn.Sequential, side: int) -> int:
    """Least side, at least `side`, at which the windows of every convolution cover the whole image."""
    layers = [(conv.kernel_size[0], conv.stride[0]) for conv in convs if isinstance(conv, nn.Conv2d) and not any(conv.padding)]
    for kernel, stride in layers:
        side = math.ceil((side - kernel) / stride) + 1
    for kernel, stride in reversed(layers):
        side = (side - 1) * stride + kernel
    return side


def make_torso(name: str, observation_shape: tuple[int, int, int]) -> Any:
    """The torso of a name that the user gave: a module from pixels [N, C, H, W] to features [N, num_features].

    A name that is not built in is that of a factory, which takes the observation's shape and returns the module. Raises
    ConfigError if it does not.
    """
    factory: Any = resolve(name, TORSOS, "torso")
    if name in TORSOS:
        return Torso(name, observation_shape)
    if not callable(factory):
        raise ConfigError(f"{name} is not a torso: it must be a function or class that takes the shape of an observation")
    with errors_named(f"torso {name}"):
        torso = factory(observation_shape)
    width = getattr(torso, "num_features", None)
    if not isinstance(torso, nn.Module) or type(width) is not int or width < 1:
        raise ConfigError(f"{name} is not a torso: it must return a torch module with an integer `num_features`")
    with errors_named(f"torso {name}"), torch.no_grad():
        found = torso(torch.zeros(2, *observation_shape))
    if not isinstance(found, Tensor) or found.shape != (2, width):
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ConfigError(f"the torso {name} maps [2, {', '.join(map(str, observation_shape))}] to {shape}, not [2, {width}]")
    return torso


class Torso(nn.Module):
    """Preprocessed observations [N, C, H, W] -> features [N, F]; `shallow`, `nature` or `deep`.

    Images whose last rows and columns no window would cover are padded with zeros; Atari's 84 x 84 need none.
    """

    def __init__(self, name: str, observation_shape: tuple[int, int, int]):
        super().__init__()
        channels, height, width = observation_shape
        self.convs, self.num_features = TORSOS[name](channels)
        padded_height, padded_width = padded_side(self.convs, height), padded_side(self.convs, width)
        self._padding = (0, padded_width - width, 0, padded_height - height)
        with torch.no_grad():
            flat = self.convs(torch.zeros(1, channels, padded_height, padded_width)).numel()
        self.linear = Linear(flat, self.num_features)
        self.relu = ReLU()
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                orthogonal(module, RELU_GAIN)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> Tensor:
        if any(self._padding):
            pixels = nn.functional.pad(pixels, self._padding)
        return self.relu(self.linear(self.convs(pixels).flatten(1)))
