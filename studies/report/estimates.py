"""Statistics of a sweep after Agarwal et al. 2021: stratified bootstrap, interquartile mean, permutation test, Holm correction.

The stratified bootstrap resamples seeds with replacement within each game. Scores of one agent are one array per game, and
the arrays may differ in length: a missing trial is not filled in. A statistic reduces the last axis, so all resamples are
computed at once. Confidence intervals are 95% percentile intervals; the generator's seed is fixed, so the same scores give
the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from studies.statistics import CONFIDENCE, RESAMPLES, Array, probability_of_improvement

Scores = Sequence[Array]
"""For each game, the scores [..., seeds]."""
SEED = 0
PERMUTATIONS = 10_000
SIGNIFICANCE = 1 - CONFIDENCE


@dataclass(frozen=True)
class Estimate:
    """A point estimate and its confidence interval, which is None with a single seed."""

    value: float
    low: float | None = None
    high: float | None = None


def interquartile_mean(values: Array) -> Array:
    """The mean without the lowest and the highest quarter, whose size is rounded down."""
    size = values.shape[-1]
    cut = int(0.25 * size)
    return np.sort(values, axis=-1)[..., cut : size - cut].mean(-1)


def pooled_interquartile_mean(scores: Scores) -> Array:
    """The interquartile mean over all seeds of all games."""
    return interquartile_mean(np.concatenate(scores, axis=-1))


def mean_probability_of_improvement(x: Scores, y: Scores) -> Array:
    """The probability that a run of x beats a run of y on the same game, ties counting half, averaged over games."""
    return np.mean([probability_of_improvement(ours, theirs) for ours, theirs in zip(x, y, strict=True)], axis=0)


def mean_ratio(x: Scores, y: Scores) -> Array:
    """The mean of x divided by the mean of the baseline y on the same game, averaged over games."""
    return np.mean([ours.mean(-1) / theirs.mean(-1) for ours, theirs in zip(x, y, strict=True)], axis=0)


def estimate(statistic: Callable[[Scores], Array], scores: Scores) -> Estimate:
    """A statistic of one agent's scores with its stratified bootstrap interval; no interval where a game has one seed."""
    value = float(statistic(scores))
    if min(map(len, scores)) < 2:
        return Estimate(value)
    return Estimate(value, *percentile_interval(statistic(resamples(scores, np.random.default_rng(SEED)))))


def two_sample_estimate(statistic: Callable[[Scores, Scores], Array], x: Scores, y: Scores) -> Estimate:
    """The same for a statistic of two agents, whose seeds are resampled independently."""
    value = float(statistic(x, y))
    if min(map(len, [*x, *y])) < 2:
        return Estimate(value)
    rng = np.random.default_rng(SEED)
    return Estimate(value, *percentile_interval(statistic(resamples(x, rng), resamples(y, rng))))


def mean_estimate(values: Array) -> Estimate:
    return estimate(lambda games: games[0].mean(-1), [values])


def difference_estimate(x: Array, y: Array) -> Estimate:
    """The difference of the means of two independent samples."""
    return two_sample_estimate(lambda a, b: a[0].mean(-1) - b[0].mean(-1), [x], [y])


@dataclass(frozen=True)
class Improvement:
    """The paper's (A1 - A2)/|A2|, where A is the mean final score, and a remark where it is undefined or unreliable."""

    estimate: Estimate | None
    remark: str = ""


def improvement(x: Array, y: Array) -> Improvement:
    """The improvement of x over the baseline y.

    It has no interval where the baseline's interval contains 0, and no value where the baseline's mean is exactly 0.
    """
    baseline = mean_estimate(y)
    if baseline.value == 0:
        return Improvement(None, "the baseline's mean is 0")
    if baseline.low is not None and baseline.high is not None and baseline.low <= 0 <= baseline.high:
        return Improvement(Estimate(float(_ratio([x], [y]))), "the baseline may be 0: no finite interval")
    return Improvement(two_sample_estimate(_ratio, [x], [y]))


def _ratio(x: Scores, y: Scores) -> Array:
    baseline = y[0].mean(-1)
    # Single resamples of the baseline can be 0 although its interval excludes 0; they count as extremes, not as NaN.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num((x[0].mean(-1) - baseline) / np.abs(baseline))


def performance_profile(scores: Scores, thresholds: Array) -> tuple[Array, Array | None, Array | None]:
    """The share of all runs above each threshold, with pointwise bootstrap intervals, each [thresholds]."""
    value = (np.concatenate(scores)[:, None] > thresholds).mean(0)
    if min(map(len, scores)) < 2:
        return value, None, None
    resampled = np.concatenate(resamples(scores, np.random.default_rng(SEED)), axis=-1)
    shares = np.stack([(resampled > threshold).mean(-1) for threshold in thresholds], axis=-1)
    low, high = np.quantile(shares, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return value, low, high


def permutation_p_value(x: Scores, y: Scores) -> float:
    """Two-sided p-value of the permutation test whose statistic is the mean probability of improvement.

    The agents' labels are permuted within each game: all permutations if there are at most PERMUTATIONS, else so many random
    ones. It guards against the bootstrap, whose intervals are too narrow with few seeds: 3 against 3 on one game give at
    least 0.1.
    """
    observed = abs(float(mean_probability_of_improvement(x, y)) - 0.5)
    sizes = [(len(ours), len(theirs)) for ours, theirs in zip(x, y, strict=True)]
    exact = prod(comb(n + m, n) for n, m in sizes) <= PERMUTATIONS
    null = np.zeros(1)
    for number, (ours, theirs) in enumerate(zip(x, y, strict=True)):
        n, m = sizes[number]
        assignments = _all_assignments(n, m) if exact else _random_assignments(n, m, number)
        # The Mann-Whitney statistic, from the ranks (counted from 0) of the runs that are assigned to x.
        shares = (_midranks(np.concatenate([ours, theirs]))[assignments].sum(-1) - n * (n - 1) / 2) / (n * m)
        null = np.add.outer(null, shares).ravel() if exact else null + shares
    extreme = np.abs(null / len(sizes) - 0.5) >= observed - 1e-12
    return float(extreme.mean()) if exact else float((1 + extreme.sum()) / (1 + PERMUTATIONS))


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """P-values after Holm's step-down correction, which bounds the family-wise error rate."""
    corrected, least, left = [0.0] * len(p_values), 0.0, len(p_values)
    for index in sorted(range(len(p_values)), key=lambda i: p_values[i]):
        least = max(least, min(1.0, left * p_values[index]))
        corrected[index], left = least, left - 1
    return corrected


@cache
def _all_assignments(ours: int, theirs: int) -> NDArray[np.int16]:
    """[permutations, ours]: all choices of the runs that are assigned to the first agent."""
    return np.array(list(combinations(range(ours + theirs), ours)), dtype=np.int16)


@lru_cache(maxsize=128)
def _random_assignments(ours: int, theirs: int, number: int) -> NDArray[np.int16]:
    """[PERMUTATIONS, ours]: random choices of those runs, independent between games, which `number` counts."""
    order = np.random.default_rng([SEED, number]).random((PERMUTATIONS, ours + theirs)).argsort(-1)
    return order[:, :ours].astype(np.int16)


def _midranks(values: Array) -> Array:
    """Ranks from 0; ties share the mean of their ranks."""
    return (values[:, None] > values).sum(-1) + 0.5 * ((values[:, None] == values).sum(-1) - 1)


def resamples(scores: Scores, rng: np.random.Generator) -> Scores:
    """Scores [RESAMPLES, seeds] for each game, resampled with replacement."""
    return [game[rng.integers(len(game), size=(RESAMPLES, len(game)))] for game in scores]


def percentile_interval(resampled: Array) -> tuple[float, float]:
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
