"""What may be said of two tasks in words: never more than the intervals allow."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, prod

from studies.comparison_statistics import (
    SIGNIFICANCE,
    Estimate,
    Scores,
    chance_probability,
    difference_estimate,
    estimate_of_two,
    mean_probability_of_improvement,
)
from studies.statistics import Array


@dataclass(frozen=True)
class Verdict:
    kind: str
    """better, worse, open (a difference is not shown) or too few (it could not be shown)."""
    words: str
    estimate: Estimate | None
    chance: float | None
    """How likely so clear an order of the runs is if the tasks do not differ."""


def least_chance(x: Scores, y: Scores) -> float:
    """The smallest probability that `chance_probability` can give for so many seeds: all of one task above all of the other."""
    return min(1.0, 2 / prod(comb(len(ours) + len(theirs), len(ours)) for ours, theirs in zip(x, y, strict=True)))


def judge_game(x: Array, y: Array) -> Verdict:
    """Final scores of two tasks on one game. Both the interval of the difference and the order of the runs must agree."""
    if not len(x) or not len(y):
        return Verdict("too few", "no finished trials to compare", None, None)
    difference = difference_estimate(x, y)
    seeds = f"{len(x)} against {len(y)} seeds"
    if min(len(x), len(y)) < 2:
        return Verdict("too few", f"one seed shows nothing ({seeds})", difference, None)
    least = least_chance([x], [y])
    if least > SIGNIFICANCE:
        words = f"too few seeds to tell ({seeds}): even if all runs of one task beat all of the other, chance does that"
        return Verdict("too few", f"{words} {least:.0%} of the time", difference, None)
    chance = chance_probability([x], [y])
    low, high = _bounds(difference)
    if chance <= SIGNIFICANCE and low > 0:
        return Verdict("better", f"better by {figure(low)} to {figure(high)}", difference, chance)
    if chance <= SIGNIFICANCE and high < 0:
        return Verdict("worse", f"worse by {figure(-high)} to {figure(-low)}", difference, chance)
    if low > 0 or high < 0:
        words = (
            f"no difference shown: the interval leaves out 0, but chance orders the runs as clearly {chance:.0%} of the time"
        )
        return Verdict("open", words, difference, chance)
    return Verdict("open", f"no difference shown: it may lie anywhere from {figure(low)} to {figure(high)}", difference, chance)


def judge_games(x: Scores, y: Scores) -> Verdict:
    """Two tasks over several games: how often a run of one beats a run of the other on the same game."""
    if not x:
        return Verdict("too few", "no game has finished trials of both", None, None)
    probability = estimate_of_two(mean_probability_of_improvement, x, y)
    least = least_chance(x, y)
    if probability.low is None or least > SIGNIFICANCE:
        words = "too few seeds to tell" if probability.low is not None else "a game has but one seed, so nothing can be told"
        return Verdict("too few", words, probability, None)
    chance = chance_probability(x, y)
    low, high = _bounds(probability)
    if chance <= SIGNIFICANCE and low > 0.5:
        return Verdict("better", f"a run of it is the better one {low:.0%} to {high:.0%} of the time", probability, chance)
    if chance <= SIGNIFICANCE and high < 0.5:
        return Verdict(
            "worse", f"a run of it is the worse one {1 - high:.0%} to {1 - low:.0%} of the time", probability, chance
        )
    words = f"no difference shown: a run of it is the better one {low:.0%} to {high:.0%} of the time"
    return Verdict("open", words, probability, chance)


def figure(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high
