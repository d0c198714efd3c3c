"""Metrics of a batch whose parts may be on several ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.ranks import Ranks

SMALLEST_VARIANCE = 1e-12
"""Targets with a smaller variance count as constant."""


@dataclass(frozen=True)
class Metric:
    """A scalar to log: sums over the batch, which add up over ranks, and the function of the sums."""

    sums: Tensor
    """[k] float64"""
    value: Callable[[Tensor], Tensor]
    """From the sums of the whole batch to the scalar."""


def evaluate(metrics: dict[str, Metric], ranks: Ranks) -> dict[str, float]:
    """The metrics of the batches of all ranks together."""
    sums = ranks.sum_(torch.cat([metric.sums for metric in metrics.values()]))
    parts = sums.split([len(metric.sums) for metric in metrics.values()])
    values = torch.stack([metric.value(part) for metric, part in zip(metrics.values(), parts, strict=True)])
    return dict(zip(metrics, values.tolist(), strict=True))


@torch.no_grad()
def mean(values: Tensor, mask: Tensor | None = None) -> Metric:
    """Mean of `values` [T, B, ...] over the steps in `mask` [T, B]; NaN if there are none."""
    values = values.detach()
    if mask is None:
        return ratio(values.sum(), values.new_tensor(values.numel()))
    while values.dim() > mask.dim():
        values = values.mean(-1)
    return ratio(torch.where(mask, values, 0).sum(), mask.sum())


def ratio(numerator: Tensor, denominator: Tensor) -> Metric:
    return Metric(torch.stack([numerator.detach().double(), denominator.double()]), lambda sums: sums[0] / sums[1])


def maximum(values: Tensor, ranks: Ranks) -> Metric:
    """Largest of `values`, which each rank enters into a place of its own."""
    sums = torch.zeros(ranks.size, dtype=torch.float64, device=values.device)
    sums[ranks.rank] = values.max()
    return Metric(sums, Tensor.max)


@torch.no_grad()
def explained_variance(prediction: Tensor, target: Tensor) -> Metric:
    """1 - Var(target - prediction) / Var(target) over [N]: 1 is perfect, 0 no better than a constant.

    NaN if the target is constant.
    """

    def value(sums: Tensor) -> Tensor:
        residual, variance = _variance(sums.view(2, 3, 1)).flatten()
        return torch.where(variance > SMALLEST_VARIANCE, 1 - residual / variance, torch.nan)

    return Metric(torch.cat([_moments(x[:, None]) for x in (target - prediction, target)]), value)


@torch.no_grad()
def relative_error(error: Tensor, target: Tensor) -> Metric:
    """Mean squared error over the variance of the target, averaged over d, for [N, d]; 1 for the best constant prediction.

    Constant targets are left out; NaN if all are constant, as with N < 2.
    """

    def value(sums: Tensor) -> Tensor:
        (count, _, squares), moments = sums.view(2, 3, -1)
        variance = _variance(moments)
        return torch.where(variance > SMALLEST_VARIANCE, squares / count / variance, torch.nan).nanmean()

    return Metric(torch.cat([_moments(error), _moments(target)]), value)


@torch.no_grad()
def spread(values: Tensor) -> Metric:
    """Standard deviation over N, averaged over d, for [N, d]."""
    return Metric(_moments(values), lambda sums: _variance(sums.view(3, -1)).sqrt().mean())


def _moments(values: Tensor) -> Tensor:
    """Flat [3 d]: number, sum and sum of squares over N of each of d columns of `values` [N, d]."""
    values = values.double()
    return torch.cat([values.new_full(values.shape[1:], len(values)), values.sum(0), (values**2).sum(0)])


def _variance(moments: Tensor) -> Tensor:
    """[..., 3, d] -> [..., d]"""
    count, total, squares = moments.unbind(-2)
    return (squares / count - (total / count) ** 2).clamp(min=0)
