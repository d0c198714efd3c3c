"""How often the verdicts of a report would claim a difference where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from studies.report.estimates import SEED
from studies.report.paired import Sample
from studies.report.verdicts import Row, kinds, weigh

SPLITS = 200
LEAST_TRIALS = 4
"""On each game; fewer cannot be split into two groups that have a spread."""


@dataclass(frozen=True)
class Calibration:
    """One agent against itself."""

    agent: str
    games: list[str]
    claims: float
    """Share of the splits in which any row of the table was called better or worse."""


def false_claims(samples: Sequence[Sample], splits: int = SPLITS) -> float:
    """The share of splits of one agent's trials, on each game, into two groups whose table makes any claim.

    The splits are random, or all that there are if one game has no more.
    """
    if len(samples) == 1 and comb(len(samples[0]), len(samples[0]) // 2) <= splits:
        (scores,) = (list(sample.values()) for sample in samples)
        found = [_claims([_split(scores, ours)]) for ours in combinations(range(len(scores)), len(scores) // 2)]
        return sum(found) / len(found)
    rng = np.random.default_rng(SEED)
    found = []
    for _ in range(splits):
        chosen = [rng.permutation(len(sample))[: len(sample) // 2] for sample in samples]
        found.append(_claims([_split(list(sample.values()), ours) for sample, ours in zip(samples, chosen, strict=True)]))
    return sum(found) / len(found)


def _split(scores: list[float], ours: Iterable[int]) -> tuple[Sample, Sample]:
    chosen = {int(index) for index in ours}
    return {i: scores[i] for i in chosen}, {i: score for i, score in enumerate(scores) if i not in chosen}


def _claims(halves: Sequence[tuple[Sample, Sample]]) -> bool:
    """Whether the table of two groups on these games calls any row better or worse."""
    rows = [Row([ours], [theirs]) for ours, theirs in halves]
    if len(rows) > 1:
        rows.append(Row([ours for ours, _ in halves], [theirs for _, theirs in halves], over_games=True))
    return any(kind in ("better", "worse") for kind in kinds([weigh(row) for row in rows]))
