"""Statistical power of a comparison: the minimum detectable effect of a design, and the seeds that an effect needs.

Effects d are differences of two means in units of their common standard deviation (Cohen's d). By the normal approximation
with Guenther's (1981) correction for an estimated standard deviation, an effect d needs n = 2 (z_alpha + z_beta)^2 / d^2 +
z_alpha^2 / 4 seeds of each agent. The seeds of several games add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, comb, inf, sqrt
from statistics import NormalDist

import numpy as np

from studies.statistics import Array

POWER = 0.8
"""Probability with which an effect shall be significant."""
MAX_SEEDS = 10_000
_NORMAL = NormalDist()


def pooled_standard_deviation(x: Array, y: Array) -> float:
    """The standard deviation within two samples, which have at least three scores together."""
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in (x, y))
    return sqrt(squares / (len(x) + len(y) - 2))


def minimum_detectable_effect(sizes: Sequence[tuple[int, int]], significance: float) -> float:
    """The effect that is significant with probability POWER; `sizes` are the seeds of both agents on each game."""
    seeds = len(sizes) ** 2 / sum((1 / ours + 1 / theirs) / 2 for ours, theirs in sizes)
    z_alpha, z_beta = _quantiles(significance)
    corrected = seeds - z_alpha**2 / 4
    return (z_alpha + z_beta) * sqrt(2 / corrected) if corrected > 0 else inf


def seeds_needed(effect: float, significance: float, games: int = 1) -> int | None:
    """Seeds per agent and game with which an effect is significant with probability POWER; None if more than MAX_SEEDS."""
    z_alpha, z_beta = _quantiles(significance)
    if effect == 0:
        return None
    needed = (2 * ((z_alpha + z_beta) / effect) ** 2 + z_alpha**2 / 4) / games
    if needed > MAX_SEEDS:
        return None
    seeds = max(2, ceil(needed))
    # The permutation test has a smallest p-value, however large the effect.
    while 2 / comb(2 * seeds, seeds) ** games > significance:
        seeds += 1
    return seeds


def probability_from_effect(effect: float) -> float:
    """The probability of improvement of an effect, for normally distributed scores."""
    return _NORMAL.cdf(effect / sqrt(2))


def effect_from_probability(probability: float) -> float:
    """Inverse of `probability_from_effect`, finite for 0 and 1 too."""
    return sqrt(2) * _NORMAL.inv_cdf(float(np.clip(probability, 1e-3, 1 - 1e-3)))


def _quantiles(significance: float) -> tuple[float, float]:
    """z_alpha of a two-sided test, and z_beta."""
    return _NORMAL.inv_cdf(1 - significance / 2), _NORMAL.inv_cdf(POWER)
