"""Sums over the ranks of a data-parallel learner, each of which has an equal part of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor


class Ranks(Protocol):
    """The ranks of a run. Every rank calls the same methods in the same order."""

    rank: int
    size: int

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace `tensor` by its sum over ranks and return it."""
        ...

    def start_sum(self, tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
        """Start to sum detached `tensors` over ranks; the function returned waits for the sums."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """The picklable `value` of every rank, in their order, on rank 0; an empty list on the others."""
        ...

    def take_seconds(self) -> float:
        """Seconds spent in communication since the last call, waiting for slower ranks included."""
        ...


class OneRank:
    """A learner on its own."""

    rank = 0
    size = 1

    def sum_(self, tensor: Tensor) -> Tensor:
        return tensor

    def start_sum(self, tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
        return lambda: tensors

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def take_seconds(self) -> float:
        return 0.0


ONE_RANK = OneRank()


class _Sum(torch.autograd.Function):
    """The sum over ranks; the adjoint of a sum over ranks is a sum over ranks."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.sum_(tensor.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.sum_(gradients[0].clone()), None


def var_mean(values: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """Variance and mean [d] of `values` [N, d] over the rows of all ranks, once differentiable."""
    if ranks.size == 1:
        return torch.var_mean(values, 0, correction=0)
    count = ranks.size * len(values)
    mean = _Sum.apply(values.sum(0), ranks) / count
    return _Sum.apply(((values - mean) ** 2).sum(0), ranks) / count, mean


def std_mean(values: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean [d] of `values` [N, d] over the rows of all ranks."""
    if ranks.size == 1:
        return torch.std_mean(values, 0, correction=0)
    variance, mean = var_mean(values, ranks)
    return variance.sqrt(), mean
