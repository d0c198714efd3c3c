"""Paired comparison of two agents: trials of one game and seed start from the same weights and play games of the same seeds.

Differences over several games are in units of the standard deviation of all runs of both agents on the game. That scale does
not depend on the agents' labels, so the sign-flip test and the bootstrap over pairs keep it fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from studies.report.estimates import PERMUTATIONS, SEED, Estimate, Scores, percentile_interval, resamples
from studies.statistics import Array

MAX_EXACT_PAIRS = 12
"""Up to so many pairs the sign-flip test is exact (4096 sign patterns); beyond it, PERMUTATIONS random patterns are used."""
Sample = Mapping[int, float]
"""Scores of one agent on one game, by seed."""


@dataclass(frozen=True)
class PairedComparison:
    """Mean paired difference with its bootstrap interval, and the p-value of the sign-flip permutation test."""

    estimate: Estimate
    p_value: float
    pairs: int


def compare_paired(x: Sequence[Sample], y: Sequence[Sample], normalise: bool) -> PairedComparison | None:
    """Over the seeds that both agents have, games weighted equally; None where a game has fewer than two such seeds."""
    differences: list[Array] = []
    for ours, theirs in zip(x, y, strict=True):
        seeds = sorted(set(ours) & set(theirs))
        if len(seeds) < 2:
            return None
        scale = float(np.std([*ours.values(), *theirs.values()], ddof=1)) if normalise else 1.0
        difference = np.array([ours[seed] - theirs[seed] for seed in seeds])
        differences.append(difference / scale if scale else difference)  # With zero spread all differences are 0.
    value = _mean_over_games(differences)
    interval = percentile_interval(_mean_over_games(resamples(differences, np.random.default_rng(SEED))))
    return PairedComparison(Estimate(float(value), *interval), sign_flip_p_value(differences), sum(map(len, differences)))


def sign_flip_p_value(differences: Scores) -> float:
    """Two-sided p-value of the mean difference under random signs of the paired differences."""
    weights = np.concatenate([game / (len(game) * len(differences)) for game in differences])
    exact = len(weights) <= MAX_EXACT_PAIRS
    if exact:
        signs = np.array(list(product((1.0, -1.0), repeat=len(weights))))
    else:
        signs = np.random.default_rng(SEED).choice((1.0, -1.0), size=(PERMUTATIONS, len(weights)))
    tolerance = 1e-12 * float(np.abs(weights).sum())
    extreme = np.abs(signs @ weights) >= abs(float(weights.sum())) - tolerance
    return float(extreme.mean()) if exact else float((1 + extreme.sum()) / (1 + PERMUTATIONS))


def _mean_over_games(differences: Scores) -> Array:
    return np.mean([game.mean(-1) for game in differences], axis=0)
