"""The false positive rate of the verdicts: how often they find a difference between two halves of one agent's trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from studies.report.estimates import SEED
from studies.report.paired import Sample
from studies.report.verdicts import Comparison, assess, verdict_kinds

SPLITS = 200
MIN_TRIALS = 4
"""On each game; fewer cannot be split into two groups of at least two seeds."""


@dataclass(frozen=True)
class Calibration:
    """One agent compared with itself."""

    agent: str
    games: list[str]
    false_positive_rate: float
    """Share of the splits in which any comparison of the table was called better or worse."""


def false_positive_rate(samples: Sequence[Sample], splits: int = SPLITS) -> float:
    """The share of splits of one agent's trials into two groups per game for which the table calls any comparison significant.

    Splits are random, or exhaustive for a single game with at most `splits` of them.
    """
    if len(samples) == 1 and comb(len(samples[0]), len(samples[0]) // 2) <= splits:
        (scores,) = (list(sample.values()) for sample in samples)
        found = [_any_claim([_split(scores, ours)]) for ours in combinations(range(len(scores)), len(scores) // 2)]
        return sum(found) / len(found)
    rng = np.random.default_rng(SEED)
    found = []
    for _ in range(splits):
        chosen = [rng.permutation(len(sample))[: len(sample) // 2] for sample in samples]
        found.append(_any_claim([_split(list(sample.values()), ours) for sample, ours in zip(samples, chosen, strict=True)]))
    return sum(found) / len(found)


def _split(scores: list[float], ours: Iterable[int]) -> tuple[Sample, Sample]:
    chosen = {int(index) for index in ours}
    return {i: scores[i] for i in chosen}, {i: score for i, score in enumerate(scores) if i not in chosen}


def _any_claim(halves: Sequence[tuple[Sample, Sample]]) -> bool:
    """Whether the table of two groups on these games calls any comparison better or worse."""
    comparisons = [Comparison([ours], [theirs]) for ours, theirs in halves]
    if len(comparisons) > 1:
        comparisons.append(Comparison([ours for ours, _ in halves], [theirs for _, theirs in halves], over_games=True))
    return any(kind in ("better", "worse") for kind in verdict_kinds([assess(comparison) for comparison in comparisons]))
