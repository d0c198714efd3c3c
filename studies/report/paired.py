"""Two agents seed by seed: trials of one game and seed begin with the same weights and play the same games.

Differences over several games are measured in standard deviations of all runs of both agents on the game. That scale does not
depend on which run is whose, so that signs can be flipped and pairs resampled while it stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from studies.report.estimates import SEED, SHUFFLES, Estimate, Scores, percentile_interval, resamples
from studies.statistics import Array

EXACT_PAIRS = 12
"""Up to so many pairs every pattern of signs is tried, of which there are 4096; beyond it SHUFFLES random ones."""
Sample = Mapping[int, float]
"""Scores of one agent on one game, by seed."""


@dataclass(frozen=True)
class Paired:
    """Mean difference seed by seed, and how likely one as large is if the agents do not differ."""

    estimate: Estimate
    chance: float
    pairs: int


def compare_pairs(x: Sequence[Sample], y: Sequence[Sample], normalise: bool) -> Paired | None:
    """Over the seeds that both have on each game; None where a game has less than two. Each game counts alike."""
    differences: list[Array] = []
    for ours, theirs in zip(x, y, strict=True):
        seeds = sorted(set(ours) & set(theirs))
        if len(seeds) < 2:
            return None
        scale = float(np.std([*ours.values(), *theirs.values()], ddof=1)) if normalise else 1.0
        difference = np.array([ours[seed] - theirs[seed] for seed in seeds])
        differences.append(difference / scale if scale else difference)  # No spread at all: all differences are 0.
    value = _mean_over_games(differences)
    interval = percentile_interval(_mean_over_games(resamples(differences, np.random.default_rng(SEED))))
    return Paired(Estimate(float(value), *interval), sign_flip_probability(differences), sum(map(len, differences)))


def sign_flip_probability(differences: Scores) -> float:
    """How likely a mean difference at least as far from 0 is if each difference could as well have the other sign."""
    weights = np.concatenate([game / (len(game) * len(differences)) for game in differences])
    exact = len(weights) <= EXACT_PAIRS
    if exact:
        signs = np.array(list(product((1.0, -1.0), repeat=len(weights))))
    else:
        signs = np.random.default_rng(SEED).choice((1.0, -1.0), size=(SHUFFLES, len(weights)))
    tolerance = 1e-12 * float(np.abs(weights).sum())
    extreme = np.abs(signs @ weights) >= abs(float(weights.sum())) - tolerance
    return float(extreme.mean()) if exact else float((1 + extreme.sum()) / (1 + SHUFFLES))


def _mean_over_games(differences: Scores) -> Array:
    return np.mean([game.mean(-1) for game in differences], axis=0)
