"""What a design of so many seeds can show, and how many seeds would show what was seen.

For two means with equal spread, by the normal approximation with Guenther's (1981) correction for a spread that is estimated:
n = 2 (z_alpha + z_beta)^2 / d^2 + z_alpha^2 / 4 seeds of each show a difference of d standard deviations. Over G games
the seeds of all count, and the spread of each game is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, comb, inf, sqrt
from statistics import NormalDist

import numpy as np

from studies.statistics import Array

POWER = 0.8
MAX_SEEDS = 10_000
_NORMAL = NormalDist()


def pooled_deviation(x: Array, y: Array) -> float:
    """The standard deviation within two samples, of at least three scores together."""
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in (x, y))
    return sqrt(squares / (len(x) + len(y) - 2))


def detectable_effect(sizes: Sequence[tuple[int, int]], significance: float) -> float:
    """The difference, in standard deviations, that is shown with probability POWER by so many seeds of each for each game."""
    seeds = len(sizes) ** 2 / sum((1 / ours + 1 / theirs) / 2 for ours, theirs in sizes)
    alpha, beta = _quantiles(significance)
    spare = seeds - alpha**2 / 4
    return (alpha + beta) * sqrt(2 / spare) if spare > 0 else inf


def seeds_needed(effect: float, significance: float, games: int = 1) -> int | None:
    """Seeds of each agent on each game that show an effect with probability POWER; None for more than MAX_SEEDS."""
    alpha, beta = _quantiles(significance)
    if effect == 0:
        return None
    needed = (2 * ((alpha + beta) / effect) ** 2 + alpha**2 / 4) / games
    if needed > MAX_SEEDS:
        return None
    seeds = max(2, ceil(needed))
    # However large the effect, a permutation test can say no more than that all runs of one beat all of the other.
    while 2 / comb(2 * seeds, seeds) ** games > significance:
        seeds += 1
    return seeds


def probability_of(effect: float) -> float:
    """The probability of improvement that belongs to an effect, for normal scores."""
    return _NORMAL.cdf(effect / sqrt(2))


def effect_of(probability: float) -> float:
    """Inverse of `probability_of`, finite for 0 and 1 too."""
    return sqrt(2) * _NORMAL.inv_cdf(float(np.clip(probability, 1e-3, 1 - 1e-3)))


def _quantiles(significance: float) -> tuple[float, float]:
    return _NORMAL.inv_cdf(1 - significance / 2), _NORMAL.inv_cdf(POWER)
