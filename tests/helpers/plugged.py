"""Tasks and torsos from outside, as a user would write them; importing the module leaves a file beside it.

Tests copy it (the fixture `plugged`), since what is imported once stays imported.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from agents.layers import PixelConv2d
from agents.tasks import AuxiliaryTask, TaskLoss
from agents.tasks.reverse_gvf import ReverseGVF
from configs.settings import Setting
from configs.tasks import MetaConfig, QuestionConfig

Path(__file__).with_suffix(".imported").touch()


@dataclass(frozen=True)
class NextRewardConfig:
    next_reward_weight: float = 0.1
    """Weight of the squared error."""
    next_reward_decay: Annotated[float, Setting(below=1)] = 0.5
    """Decay of the target network."""
    fails: bool = False
    """Raise an error in the loss."""
    fails_after: Annotated[int, Setting(role="execution")] = 0
    """Losses before that."""


class NextReward(AuxiliaryTask):
    """Predicts the reward from the features, and has a momentum copy of the torso for no purpose."""

    Config = NextRewardConfig

    def __init__(self, config, num_features):
        super().__init__(config.next_reward_weight)
        self._config = config
        self._losses = 0
        self.head = nn.Linear(num_features, 1)
        self.unused = nn.Linear(2, 2)

    @classmethod
    def build(cls, config, spec, num_features):
        return cls(config, num_features)

    def attach(self, torso):
        self.target = copy.deepcopy(torso).requires_grad_(False)

    def after_update(self, torso):
        for ours, theirs in zip(self.target.parameters(), torso.parameters(), strict=True):
            ours.lerp_(theirs, 1 - self._config.next_reward_decay)

    def predict(self, features, batch):
        return self.head(features).squeeze(-1)

    def loss(self, prediction, fixed, inputs):
        self._losses += 1
        if self._config.fails and self._losses > self._config.fails_after:
            raise ArithmeticError("of the user's own")
        return TaskLoss(0.5 * (prediction[:-1] - inputs.batch.reward) ** 2, inputs.batch.valid)


@dataclass(frozen=True)
class AskingConfig(MetaConfig, QuestionConfig):
    asking_bonus: float = 1.0
    """Has no effect."""


class Asking(ReverseGVF):
    """A Reverse GVF with one more setting: its questions are meta-learned."""

    Config = AskingConfig


class Forgetful(Asking):
    """Its Config has no settings of the meta-gradient."""

    Config = QuestionConfig


@dataclass(frozen=True)
class CollidingConfig:
    unroll: int = 3


class Colliding(NextReward):
    Config = CollidingConfig


@dataclass
class ThawedConfig:
    mild: int = 3


class Thawed(NextReward):
    Config = ThawedConfig


@dataclass(frozen=True)
class NestedConfig:
    sizes: tuple[int, ...] = (1, 2)


class Nested(NextReward):
    Config = NestedConfig


class Net(nn.Module):
    """A torso that is no Sequential: two branches and a buffer."""

    def __init__(self, shape, activation=F.relu):
        super().__init__()
        self.num_features = 24
        self.register_buffer("scale", torch.tensor(1.0))
        self.coarse, self.fine = PixelConv2d(shape[0], 4, 8, 8), PixelConv2d(shape[0], 2, 4, 8)
        self.linear = nn.LazyLinear(self.num_features)
        self._activation = activation
        with torch.no_grad():
            self(torch.zeros(1, *shape))

    def forward(self, pixels):
        branches = [F.relu(branch(pixels)).flatten(1) for branch in (self.coarse, self.fine)]
        return self._activation(self.linear(torch.cat(branches, -1)) * self.scale)


def net(shape):
    return Net(shape)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad * (1 - ctx.saved_tensors[0].tanh() ** 2)


class _Detached(_Once):
    @staticmethod
    def backward(ctx, grad):
        return (grad * (1 - ctx.saved_tensors[0].tanh() ** 2)).detach()


def once(shape):
    return Net(shape, _Once.apply)


def detached(shape):
    return Net(shape, _Detached.apply)


def narrow(shape):
    found = Net(shape)
    found.num_features = 23
    return found


def broken(shape):
    raise KeyError("of the user's own")


def function(shape):
    return lambda pixels: pixels


number = 3
