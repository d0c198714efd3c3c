"""What may be said of two agents in words: never more than the intervals and the corrected probabilities allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, isinf, prod

import numpy as np

from studies.report.estimates import (
    SIGNIFICANCE,
    Estimate,
    Scores,
    chance_probability,
    difference_estimate,
    estimate_of_two,
    holm,
    mean_probability_of_improvement,
)
from studies.report.paired import Paired, Sample, compare_pairs
from studies.report.power import POWER, detectable_effect, effect_of, pooled_deviation, probability_of, seeds_needed


@dataclass(frozen=True)
class Row:
    """Two agents to be compared: on one game by their mean scores, or over games by the probability of improvement."""

    x: Sequence[Sample]
    y: Sequence[Sample]
    over_games: bool = False

    @property
    def scores(self) -> tuple[Scores, Scores]:
        ours, theirs = ([np.array(list(sample.values()), dtype=float) for sample in side] for side in (self.x, self.y))
        return ours, theirs

    @property
    def no_difference(self) -> float:
        return 0.5 if self.over_games else 0.0

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [(len(ours), len(theirs)) for ours, theirs in zip(self.x, self.y, strict=True)]


@dataclass(frozen=True)
class Verdict:
    kind: str
    """better, worse, open (a difference is not shown), too few (it could not be shown) or not pooled."""
    words: str
    estimate: Estimate | None = None
    chance: float | None = None
    """How likely so clear an order of the runs is if the agents do not differ."""
    corrected: float | None = None
    """The same after Holm's correction for all rows of the table."""
    paired: Paired | None = None
    power: str = ""
    """What the design could have shown."""


@dataclass(frozen=True)
class Weight:
    """The numbers of a row that its verdict rests on."""

    estimate: Estimate | None
    chance: float | None = None
    least: float = 1.0
    """The smallest chance that so many seeds can give."""
    side: int = 0
    """On which side of no difference the whole interval lies, 1 or -1; 0 where it contains it."""


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Verdicts of the rows of one table, each corrected for all of them."""
    weights = [weigh(row) for row in rows]
    tested = sum(weight.chance is not None for weight in weights)
    judged = zip(rows, weights, kinds(weights), corrected_chances(weights), strict=True)
    return [_verdict(row, weight, kind, corrected, tested) for row, weight, kind, corrected in judged]


def weigh(row: Row) -> Weight:
    """Nothing where a side has no score, and no chance where one has a single score."""
    if not row.x or not all(min(sizes) for sizes in row.sizes):
        return Weight(None)
    x, y = row.scores
    found = estimate_of_two(mean_probability_of_improvement, x, y) if row.over_games else difference_estimate(x[0], y[0])
    if found.low is None:
        return Weight(found)
    low, high = _bounds(found)
    side = int(low > row.no_difference) - int(high < row.no_difference)
    return Weight(found, chance_probability(x, y), least_chance(row.sizes), side)


def corrected_chances(weights: Sequence[Weight]) -> list[float | None]:
    corrected = iter(holm([weight.chance for weight in weights if weight.chance is not None]))
    return [None if weight.chance is None else next(corrected) for weight in weights]


def kinds(weights: Sequence[Weight]) -> list[str]:
    """Both the interval and the corrected chance must agree; what could not even then be shown is too few."""
    # A corrected chance is smallest when every row of the table is as clear as its seeds allow.
    least = iter(holm([weight.least for weight in weights if weight.chance is not None]))
    found = []
    for weight, corrected in zip(weights, corrected_chances(weights), strict=True):
        if corrected is None or next(least) > SIGNIFICANCE:
            found.append("too few")
        elif corrected <= SIGNIFICANCE and weight.side:
            found.append("better" if weight.side > 0 else "worse")
        else:
            found.append("open")
    return found


def least_chance(sizes: Sequence[tuple[int, int]]) -> float:
    """The smallest probability that `chance_probability` can give: all runs of one agent above all of the other."""
    return min(1.0, 2 / prod(comb(ours + theirs, ours) for ours, theirs in sizes))


def _verdict(row: Row, weight: Weight, kind: str, corrected: float | None, tested: int) -> Verdict:
    if weight.estimate is None:
        return Verdict(kind, "no game has finished trials of both" if row.over_games else "no finished trials to compare")
    paired = compare_pairs(row.x, row.y, normalise=row.over_games)
    if weight.chance is None or corrected is None:
        words = (
            "a game has but one seed, so nothing can be told" if row.over_games else f"one seed shows nothing ({_seeds(row)})"
        )
        return Verdict(kind, words, weight.estimate, paired=paired)
    words = {"too few": _too_few, "open": _open}.get(kind, _claim)(row, weight, corrected, tested)
    power = "" if kind in ("better", "worse") else _power(row, weight.estimate.value, kind, tested)
    return Verdict(kind, words, weight.estimate, weight.chance, corrected, paired, power)


def _claim(row: Row, weight: Weight, corrected: float, tested: int) -> str:
    assert weight.estimate is not None
    low, high = _bounds(weight.estimate)
    kind = "better" if weight.side > 0 else "worse"
    if row.over_games:
        low, high = (low, high) if weight.side > 0 else (1 - high, 1 - low)
        return f"a run of it is the {kind} one {low:.0%} to {high:.0%} of the time"
    low, high = (low, high) if weight.side > 0 else (-high, -low)
    return f"{kind} by {figure(low)} to {figure(high)}"


def _too_few(row: Row, weight: Weight, corrected: float, tested: int) -> str:
    words = f"too few seeds to tell ({_seeds(row)}): even if all runs of one agent beat all of the other, chance does that"
    rows = f", and up to {percent(min(1.0, tested * weight.least))} of the time in one of the table's {tested} rows"
    return f"{words} {percent(weight.least)} of the time" + (rows if tested > 1 else "")


def _open(row: Row, weight: Weight, corrected: float, tested: int) -> str:
    assert weight.estimate is not None
    assert weight.chance is not None
    low, high = _bounds(weight.estimate)
    if weight.side and weight.chance <= SIGNIFICANCE:
        return (
            f"no difference shown: chance orders the runs as clearly {percent(weight.chance)} of the time, and up to"
            f" {percent(corrected)} of the time in one of the table's {tested} rows"
        )
    if weight.side:
        words = "no difference shown: the interval excludes 0, but chance orders the runs as clearly"
        return f"{words} {percent(weight.chance)} of the time"
    if row.over_games:
        return f"no difference shown: a run of it is the better one {low:.0%} to {high:.0%} of the time"
    return f"no difference shown: it may lie anywhere from {figure(low)} to {figure(high)}"


def _power(row: Row, seen: float, kind: str, tested: int) -> str:
    """In words; the level is that of the table's hardest row, so that the correction is counted in."""
    level, (x, y) = SIGNIFICANCE / tested, row.scores
    detectable = detectable_effect(row.sizes, level)
    if row.over_games:
        effect, shown, seen_words = effect_of(seen), f"{probability_of(detectable):.0%} of runs being better", f"{seen:.0%}"
    else:
        deviation = pooled_deviation(x[0], y[0])
        if not deviation:
            return ""
        effect, shown, seen_words = seen / deviation, f"a difference of {figure(detectable * deviation)}", figure(abs(seen))
    words = []
    if kind == "open" and not isinf(detectable) and least_chance(row.sizes) <= level:
        words.append(f"with this spread {shown} would be shown {POWER:.0%} of the time")
    needed = seeds_needed(effect, level, len(row.sizes))
    if needed is not None and effect:
        each = " a game" if row.over_games else ""
        words.append(f"to show the {seen_words} that was seen takes about {needed:,} seeds of each{each}")
    return "; ".join(words)


def _seeds(row: Row) -> str:
    ours, theirs = ({size[side] for size in row.sizes} for side in (0, 1))
    return f"{_range(ours)} against {_range(theirs)} seeds" + (" a game" if row.over_games else "")


def _range(values: set[int]) -> str:
    return str(min(values)) if len(values) == 1 else f"{min(values)} to {max(values)}"


def figure(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """Whole from a tenth on, two digits below."""
    return f"{share:.0%}" if share >= 0.1 else f"{100 * share:.2g}%"


def _bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high
