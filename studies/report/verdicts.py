"""Verdicts on two agents: better or worse only if the confidence interval and the Holm-corrected p-value both say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, isinf, prod

import numpy as np

from studies.report.estimates import (
    SIGNIFICANCE,
    Estimate,
    Scores,
    difference_estimate,
    holm_correction,
    mean_probability_of_improvement,
    permutation_p_value,
    two_sample_estimate,
)
from studies.report.paired import PairedComparison, Sample, compare_paired
from studies.report.power import (
    POWER,
    effect_from_probability,
    minimum_detectable_effect,
    pooled_standard_deviation,
    probability_from_effect,
    seeds_needed,
)
from studies.statistics import CONFIDENCE

CI = f"({CONFIDENCE:.0%} CI)"


@dataclass(frozen=True)
class Comparison:
    """Scores of two agents: on one game compared by their means, over several games by the probability of improvement."""

    x: Sequence[Sample]
    y: Sequence[Sample]
    over_games: bool = False

    @property
    def scores(self) -> tuple[Scores, Scores]:
        ours, theirs = ([np.array(list(sample.values()), dtype=float) for sample in side] for side in (self.x, self.y))
        return ours, theirs

    @property
    def null_value(self) -> float:
        """The value of the statistic for two agents that do not differ."""
        return 0.5 if self.over_games else 0.0

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Seeds of both agents on each game."""
        return [(len(ours), len(theirs)) for ours, theirs in zip(self.x, self.y, strict=True)]


@dataclass(frozen=True)
class Verdict:
    kind: str
    """better, worse, open (no significant difference), too few (significance was out of reach) or not pooled."""
    words: str
    estimate: Estimate | None = None
    p_value: float | None = None
    """Of the permutation test."""
    holm_p_value: float | None = None
    """After Holm's correction for all comparisons of the table."""
    paired: PairedComparison | None = None
    power: str = ""
    """Minimum detectable effect, and seeds needed for the observed one."""


@dataclass(frozen=True)
class Evidence:
    """The statistics that a verdict rests on."""

    estimate: Estimate | None
    p_value: float | None = None
    smallest_p_value: float = 1.0
    """The smallest that so many seeds can give."""
    side: int = 0
    """1 or -1 if the whole confidence interval lies above or below the null value; 0 if it contains it."""


def conclude(comparisons: Sequence[Comparison]) -> list[Verdict]:
    """Verdicts on the comparisons of one table, corrected for all of them."""
    evidence = [assess(comparison) for comparison in comparisons]
    tested = sum(found.p_value is not None for found in evidence)
    rows = zip(comparisons, evidence, verdict_kinds(evidence), holm_p_values(evidence), strict=True)
    return [_verdict(comparison, found, kind, corrected, tested) for comparison, found, kind, corrected in rows]


def assess(comparison: Comparison) -> Evidence:
    """Estimate, confidence interval and p-value; no estimate if a sample is empty, no p-value if one has a single seed."""
    if not comparison.x or not all(min(sizes) for sizes in comparison.sizes):
        return Evidence(None)
    x, y = comparison.scores
    if comparison.over_games:
        found = two_sample_estimate(mean_probability_of_improvement, x, y)
    else:
        found = difference_estimate(x[0], y[0])
    if found.low is None:
        return Evidence(found)
    low, high = _bounds(found)
    side = int(low > comparison.null_value) - int(high < comparison.null_value)
    return Evidence(found, permutation_p_value(x, y), smallest_p_value(comparison.sizes), side)


def holm_p_values(evidence: Sequence[Evidence]) -> list[float | None]:
    corrected = iter(holm_correction([found.p_value for found in evidence if found.p_value is not None]))
    return [None if found.p_value is None else next(corrected) for found in evidence]


def verdict_kinds(evidence: Sequence[Evidence]) -> list[str]:
    """The kind of each verdict: confidence interval and corrected p-value must agree on better or worse."""
    # A corrected p-value is smallest when every comparison of the table has the smallest that its seeds allow.
    smallest = iter(holm_correction([found.smallest_p_value for found in evidence if found.p_value is not None]))
    kinds = []
    for found, corrected in zip(evidence, holm_p_values(evidence), strict=True):
        if corrected is None or next(smallest) > SIGNIFICANCE:
            kinds.append("too few")
        elif corrected <= SIGNIFICANCE and found.side:
            kinds.append("better" if found.side > 0 else "worse")
        else:
            kinds.append("open")
    return kinds


def smallest_p_value(sizes: Sequence[tuple[int, int]]) -> float:
    """The smallest value of `permutation_p_value`: every run of one agent above every run of the other, on all games."""
    return min(1.0, 2 / prod(comb(ours + theirs, ours) for ours, theirs in sizes))


def _verdict(comparison: Comparison, evidence: Evidence, kind: str, corrected: float | None, tested: int) -> Verdict:
    if evidence.estimate is None:
        return Verdict(
            kind, "no game has finished trials of both" if comparison.over_games else "no finished trials to compare"
        )
    paired = compare_paired(comparison.x, comparison.y, normalise=comparison.over_games)
    if evidence.p_value is None or corrected is None:
        return Verdict(kind, f"no test: one seed is too few ({_seeds(comparison)})", evidence.estimate, paired=paired)
    words = {"too few": _too_few, "open": _open}.get(kind, _significant)(comparison, evidence, corrected, tested)
    power = "" if kind in ("better", "worse") else _power(comparison, evidence.estimate.value, kind, tested)
    return Verdict(kind, words, evidence.estimate, evidence.p_value, corrected, paired, power)


def _significant(comparison: Comparison, evidence: Evidence, corrected: float, tested: int) -> str:
    assert evidence.estimate is not None
    low, high = _bounds(evidence.estimate)
    kind = "better" if evidence.side > 0 else "worse"
    if comparison.over_games:
        return f"{kind}: probability of improvement {low:.0%} to {high:.0%} {CI}"
    low, high = (low, high) if evidence.side > 0 else (-high, -low)
    return f"{kind} by {format_number(low)} to {format_number(high)} {CI}"


def _too_few(comparison: Comparison, evidence: Evidence, corrected: float, tested: int) -> str:
    smallest = evidence.smallest_p_value
    words = f"too few seeds to tell ({_seeds(comparison)}): p cannot be below {format_p_value(smallest)}"
    holm = f", or up to {format_p_value(min(1.0, tested * smallest))} after Holm's correction for {tested} comparisons"
    return words + (holm if tested > 1 else "")


def _open(comparison: Comparison, evidence: Evidence, corrected: float, tested: int) -> str:
    assert evidence.estimate is not None
    assert evidence.p_value is not None
    low, high = _bounds(evidence.estimate)
    words = "no significant difference:"
    if evidence.side and evidence.p_value <= SIGNIFICANCE:
        corrected_p = f"{format_p_value(corrected)} after Holm's correction for {tested} comparisons"
        return f"{words} p = {format_p_value(evidence.p_value)}, but {corrected_p}"
    if evidence.side:
        return f"{words} the interval excludes {comparison.null_value:g}, but p = {format_p_value(evidence.p_value)}"
    if comparison.over_games:
        return f"{words} probability of improvement {low:.0%} to {high:.0%} {CI}"
    return f"{words} {format_number(low)} to {format_number(high)} {CI}"


def _power(comparison: Comparison, observed: float, kind: str, tested: int) -> str:
    """Statistical power in words, at the smallest significance level that Holm's correction uses in the table."""
    level, (x, y) = SIGNIFICANCE / tested, comparison.scores
    detectable = minimum_detectable_effect(comparison.sizes, level)
    if comparison.over_games:
        effect = effect_from_probability(observed)
        smallest, seen = f"{probability_from_effect(detectable):.0%} probability of improvement", f"{observed:.0%}"
    else:
        deviation = pooled_standard_deviation(x[0], y[0])
        if not deviation:
            return ""
        effect = observed / deviation
        smallest, seen = f"a difference of {format_number(detectable * deviation)}", format_number(abs(observed))
    words = []
    if kind == "open" and not isinf(detectable) and smallest_p_value(comparison.sizes) <= level:
        words.append(f"minimum detectable effect at {POWER:.0%} power: {smallest}")
    needed = seeds_needed(effect, level, len(comparison.sizes))
    if needed is not None and effect:
        each = " and game" if comparison.over_games else ""
        words.append(f"the observed {seen} needs about {needed:,} seeds per agent{each}")
    return "; ".join(words)


def _seeds(comparison: Comparison) -> str:
    ours, theirs = ({size[side] for size in comparison.sizes} for side in (0, 1))
    return f"{_range(ours)} against {_range(theirs)} seeds" + (" per game" if comparison.over_games else "")


def _range(values: set[int]) -> str:
    return str(min(values)) if len(values) == 1 else f"{min(values)} to {max(values)}"


def format_number(value: float) -> str:
    """Three significant digits, or all before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_percent(share: float) -> str:
    """Whole percents from 10% on, two significant digits below."""
    return f"{share:.0%}" if share >= 0.1 else f"{100 * share:.2g}%"


def format_p_value(p_value: float) -> str:
    return f"{p_value:.2g}"


def _bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high
