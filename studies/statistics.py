"""What a few seeds allow to say: bootstrap intervals and the probability of improvement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES = 2000
LEVEL = 0.95


def bootstrap_interval(statistic: Callable[..., Any], *samples: Array, seed: int = 0) -> tuple[Array, Array]:
    """The 95% percentile interval of `statistic(*samples)` when the first axis of each sample is drawn anew, independently."""
    rng = np.random.default_rng(seed)
    drawn = [statistic(*(sample[rng.integers(len(sample), size=len(sample))] for sample in samples)) for _ in range(RESAMPLES)]
    low, high = np.quantile(np.array(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def mean(sample: Array) -> Array:
    return sample.mean(0)


def probability_of_improvement(x: Array, y: Array) -> Array:
    """How often a score of x exceeds one of y along the last axis, ties counting half (the Mann-Whitney statistic)."""
    ours, theirs = x[..., :, None], y[..., None, :]
    return ((ours > theirs) + 0.5 * (ours == theirs)).mean((-2, -1))


def area_under_curve(curve: Array) -> Array:
    """The mean height over evenly spaced points, along the last axis: the area divided by the length."""
    return curve.mean(-1)
