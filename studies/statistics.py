"""Bootstrap confidence intervals, the probability of improvement and the area under a learning curve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES = 2000
CONFIDENCE = 0.95


def bootstrap_interval(statistic: Callable[..., Any], *samples: Array, seed: int = 0) -> tuple[Array, Array]:
    """The 95% percentile bootstrap interval of `statistic(*samples)`.

    The first axis of each sample is resampled with replacement, independently of the other samples.
    """
    rng = np.random.default_rng(seed)

    def resampled(sample: Array) -> Array:
        return sample[rng.integers(len(sample), size=len(sample))]

    values = [statistic(*map(resampled, samples)) for _ in range(RESAMPLES)]
    low, high = np.quantile(np.array(values), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return low, high


def mean(sample: Array) -> Array:
    return sample.mean(0)


def probability_of_improvement(x: Array, y: Array) -> Array:
    """The probability that a score of x exceeds one of y, ties counting half (Mann-Whitney), along the last axis."""
    ours, theirs = x[..., :, None], y[..., None, :]
    return ((ours > theirs) + 0.5 * (ours == theirs)).mean((-2, -1))


def area_under_curve(curve: Array) -> Array:
    """The mean over evenly spaced points along the last axis: the area divided by its width."""
    return curve.mean(-1)
