"""Statistics of a sweep of trials, after Agarwal et al. 2021: what is drawn anew are the seeds within each game.

Scores of one agent are given as one array of seeds for each game, and the arrays may differ in length: a missing trial is not
filled in. A statistic looks along the last axis, so that all resamples are computed at once. Every interval is the 95%
percentile interval over a fixed set of resamples: the same scores give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from studies.statistics import LEVEL, RESAMPLES, Array, probability_of_improvement

Scores = Sequence[Array]
"""For each game, the scores of its seeds [..., seeds]."""
SEED = 0
SHUFFLES = 10_000
SIGNIFICANCE = 1 - LEVEL


@dataclass(frozen=True)
class Estimate:
    """A number, and the interval it lies in if there are seeds enough for one."""

    value: float
    low: float | None = None
    high: float | None = None


def interquartile_mean(values: Array) -> Array:
    """The mean without the lowest and the highest quarter; a quarter that is no whole number is rounded down."""
    size = values.shape[-1]
    cut = int(0.25 * size)
    return np.sort(values, axis=-1)[..., cut : size - cut].mean(-1)


def pooled_interquartile_mean(scores: Scores) -> Array:
    """Over all seeds of all games together."""
    return interquartile_mean(np.concatenate(scores, axis=-1))


def mean_probability_of_improvement(x: Scores, y: Scores) -> Array:
    """How often a run of x beats one of y on the same game, ties counting half, averaged over games."""
    return np.mean([probability_of_improvement(ours, theirs) for ours, theirs in zip(x, y, strict=True)], axis=0)


def estimate(statistic: Callable[[Scores], Array], scores: Scores) -> Estimate:
    """A statistic of one agent's scores, its interval by the stratified bootstrap; no interval where a game has one seed."""
    value = float(statistic(scores))
    if min(map(len, scores)) < 2:
        return Estimate(value)
    return Estimate(value, *percentile_interval(statistic(resamples(scores, np.random.default_rng(SEED)))))


def estimate_of_two(statistic: Callable[[Scores, Scores], Array], x: Scores, y: Scores) -> Estimate:
    """The same for a statistic of two agents, whose seeds are drawn independently."""
    value = float(statistic(x, y))
    if min(map(len, [*x, *y])) < 2:
        return Estimate(value)
    rng = np.random.default_rng(SEED)
    return Estimate(value, *percentile_interval(statistic(resamples(x, rng), resamples(y, rng))))


def mean_estimate(values: Array) -> Estimate:
    return estimate(lambda games: games[0].mean(-1), [values])


def difference_estimate(x: Array, y: Array) -> Estimate:
    """Of the means of two independent samples."""
    return estimate_of_two(lambda a, b: a[0].mean(-1) - b[0].mean(-1), [x], [y])


@dataclass(frozen=True)
class Improvement:
    """The paper's (A1 - A2)/|A2| with A the mean final score, and a remark where it must not be taken at its word."""

    estimate: Estimate | None
    remark: str = ""


def improvement(x: Array, y: Array) -> Improvement:
    """x's over the baseline y.

    A ratio whose denominator may be 0 has no finite interval; the number itself is given as the paper would give it, unless
    the baseline is exactly 0.
    """
    baseline = mean_estimate(y)
    if baseline.value == 0:
        return Improvement(None, "the baseline's mean is 0")
    if baseline.low is not None and baseline.high is not None and baseline.low <= 0 <= baseline.high:
        return Improvement(Estimate(float(_ratio([x], [y]))), "the baseline may be 0: no finite interval")
    return Improvement(estimate_of_two(_ratio, [x], [y]))


def _ratio(x: Scores, y: Scores) -> Array:
    baseline = y[0].mean(-1)
    # A few resamples of a baseline whose interval excludes 0 can still be 0; they count as an extreme, not as NaN.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num((x[0].mean(-1) - baseline) / np.abs(baseline))


def performance_profile(scores: Scores, thresholds: Array) -> tuple[Array, Array | None, Array | None]:
    """The share of all runs above each threshold, with its pointwise interval."""
    value = (np.concatenate(scores)[:, None] > thresholds).mean(0)
    if min(map(len, scores)) < 2:
        return value, None, None
    drawn = np.concatenate(resamples(scores, np.random.default_rng(SEED)), axis=-1)
    shares = np.stack([(drawn > threshold).mean(-1) for threshold in thresholds], axis=-1)
    low, high = np.quantile(shares, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return value, low, high


def chance_probability(x: Scores, y: Scores) -> float:
    """How likely a probability of improvement at least as far from one half is if the two agents do not differ.

    The permutation test: labels are shuffled within each game, in every way if there are at most SHUFFLES. The smallest value
    that 3 seeds against 3 can give on one game is 0.1, so a bootstrap interval, which is far too narrow with so few, cannot
    make them say anything.
    """
    observed = abs(float(mean_probability_of_improvement(x, y)) - 0.5)
    sizes = [(len(ours), len(theirs)) for ours, theirs in zip(x, y, strict=True)]
    exact = prod(comb(n + m, n) for n, m in sizes) <= SHUFFLES
    null = np.zeros(1)
    for number, (ours, theirs) in enumerate(zip(x, y, strict=True)):
        n, m = sizes[number]
        deals = _every_deal(n, m) if exact else _random_deals(n, m, number)
        # The Mann-Whitney statistic from the ranks, from 0 on, of the runs that are dealt to x.
        shares = (_midranks(np.concatenate([ours, theirs]))[deals].sum(-1) - n * (n - 1) / 2) / (n * m)
        null = np.add.outer(null, shares).ravel() if exact else null + shares
    extreme = np.abs(null / len(sizes) - 0.5) >= observed - 1e-12
    return float(extreme.mean()) if exact else float((1 + extreme.sum()) / (1 + SHUFFLES))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Holm's step-down correction: claims where these are at most a level are all true with one minus that probability."""
    corrected, least, left = [0.0] * len(probabilities), 0.0, len(probabilities)
    for index in sorted(range(len(probabilities)), key=lambda i: probabilities[i]):
        least = max(least, min(1.0, left * probabilities[index]))
        corrected[index], left = least, left - 1
    return corrected


@cache
def _every_deal(ours: int, theirs: int) -> NDArray[np.int16]:
    """[deals, ours]: which of all runs may be dealt to the first agent."""
    return np.array(list(combinations(range(ours + theirs), ours)), dtype=np.int16)


@lru_cache(maxsize=128)
def _random_deals(ours: int, theirs: int, number: int) -> NDArray[np.int16]:
    """[SHUFFLES, ours]; those of games with different numbers are independent."""
    order = np.random.default_rng([SEED, number]).random((SHUFFLES, ours + theirs)).argsort(-1)
    return order[:, :ours].astype(np.int16)


def _midranks(values: Array) -> Array:
    """Ranks from 0 on; equal values share the mean of theirs."""
    return (values[:, None] > values).sum(-1) + 0.5 * ((values[:, None] == values).sum(-1) - 1)


def resamples(scores: Scores, rng: np.random.Generator) -> Scores:
    """[RESAMPLES, seeds] for each game."""
    return [game[rng.integers(len(game), size=(RESAMPLES, len(game)))] for game in scores]


def percentile_interval(drawn: Array) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
