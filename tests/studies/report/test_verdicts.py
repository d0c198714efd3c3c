"""Verdicts on two agents, and their wording."""

import re

import numpy as np
import pytest

from studies.report.verdicts import Comparison, conclude, format_number, format_percent, smallest_p_value

HIGH, LOW = [6.0, 7.0, 8.0, 9.0, 7.5], [1.0, 2.0, 3.0, 4.0, 2.5]


def sample(scores):
    return dict(enumerate(scores))


def game(x, y):
    return Comparison([sample(x)], [sample(y)])


def games(x, y):
    return Comparison([sample(scores) for scores in x], [sample(scores) for scores in y], over_games=True)


def conclude_one(row):
    (verdict,) = conclude([row])
    return verdict


def test_five_separated_seeds_are_significant():
    better, worse = conclude_one(game(HIGH, LOW)), conclude_one(game(LOW, HIGH))
    assert (better.kind, worse.kind) == ("better", "worse")
    assert better.words == f"better by {format_number(better.estimate.low)} to {format_number(better.estimate.high)} (95% CI)"
    assert worse.words == f"worse by {format_number(-worse.estimate.high)} to {format_number(-worse.estimate.low)} (95% CI)"
    assert better.p_value == better.holm_p_value == pytest.approx(2 / 252)
    assert better.power == ""


def test_paired_differences_do_not_decide_the_verdict():
    verdict = conclude_one(game(HIGH, LOW))
    assert verdict.paired.estimate.value == 5
    assert verdict.paired.p_value == 2 / 32  # More than a twentieth.
    assert verdict.kind == "better"
    assert conclude_one(games([HIGH, HIGH], [LOW, LOW])).paired.pairs == 10


def test_three_seeds_are_too_few_for_significance():
    verdict = conclude_one(game(HIGH[:3], LOW[:3]))
    assert verdict.kind == "too few"
    assert "3 against 3 seeds" in verdict.words
    assert verdict.words.endswith("p cannot be below 0.1")
    assert verdict.estimate.low > 0  # The bootstrap alone would have claimed it.
    assert verdict.power == "the observed 5 needs about 4 seeds per agent"


def test_one_seed_and_no_seed():
    assert conclude_one(game(HIGH[:1], LOW)).words == "no test: one seed is too few (1 against 5 seeds)"
    assert conclude_one(game(HIGH, [])).words == "no finished trials to compare"


def test_a_verdict_without_significance_shows_the_interval():
    verdict = conclude_one(game([1.0, 5.0, 3.0, 2.0], [2.0, 4.0, 3.0, 1.5]))
    assert verdict.kind == "open"
    assert verdict.words.startswith("no significant difference: -")
    assert conclude_one(game(HIGH, HIGH)).kind == "open"
    same = conclude_one(game(np.ones(5), np.ones(5)))
    assert (same.words, same.power) == ("no significant difference: 0 to 0 (95% CI)", "")


def test_a_confidence_interval_alone_does_not_decide():
    """The interval of the difference excludes 0, but the permutation test is not significant."""
    verdict = conclude_one(game([2.0, 2.1, 2.2, 30.0], [1.0, 1.5, 2.05, 2.15]))
    assert verdict.estimate.low > 0
    assert verdict.p_value > 0.05
    assert verdict.kind == "open"
    assert "the interval excludes 0, but p = 0." in verdict.words


def test_more_comparisons_need_smaller_p_values():
    """2/252 for each of 6 comparisons is 0.048, of 7 comparisons 0.056."""
    clear = game(HIGH, LOW)
    assert {verdict.kind for verdict in conclude([clear] * 6)} == {"better"}
    seven = conclude([clear] * 7)
    assert {verdict.kind for verdict in seven} == {"too few"}
    assert seven[0].holm_p_value == pytest.approx(7 * 2 / 252)
    assert seven[0].words.endswith("p cannot be below 0.0079, or up to 0.056 after Holm's correction for 7 comparisons")
    # Comparisons without a test are not counted.
    assert conclude([clear] * 6 + [game(HIGH, [])] * 9)[0].kind == "better"


def test_a_p_value_that_is_significant_only_before_the_correction():
    """p = 0.015 is significant alone and not among four comparisons, for which six seeds could suffice."""
    rng = np.random.default_rng(0)
    blurred = game([5.0, 6.0, 7.0, 8.0, 9.0, 2.5], [1.0, 2.0, 3.0, 4.0, 0.0, 5.5])
    rows = [blurred, *(game(rng.normal(0, 1, 6), rng.normal(0, 1, 6)) for _ in range(3))]
    alone, among = conclude_one(blurred), conclude(rows)[0]
    assert (alone.kind, among.kind) == ("better", "open")
    assert alone.p_value == among.p_value <= 0.05 < among.holm_p_value
    assert "after Holm's correction for 4 comparisons" in among.words


def test_the_wording_of_power():
    """Variance 10/10 within, difference 0.1: 2 (1.96 + 0.84)^2 / 0.01 + 1 seeds; 2.8 sqrt(2/(6 - 0.96)) is detected."""
    x = np.array([-1.0, -1.0, 0.0, 0.0, 1.0, 1.0]) * (10 / 8) ** 0.5
    verdict = conclude_one(game(x + 0.1, x))
    assert verdict.kind == "open"
    assert verdict.power == (
        "minimum detectable effect at 80% power: a difference of 1.76; the observed 0.1 needs about 1,571 seeds per agent"
    )
    several = conclude([game(x + 0.1, x)] * 2)[0]
    assert several.power != verdict.power  # Holm's correction lowers the level.


def test_the_probability_of_improvement_over_games():
    verdict = conclude_one(games([HIGH[:3], HIGH[:3]], [LOW[:3], LOW[:3]]))
    assert (verdict.kind, verdict.words) == ("better", "better: probability of improvement 100% to 100% (95% CI)")
    assert conclude_one(games([LOW, LOW], [HIGH, HIGH])).kind == "worse"
    undecided = conclude_one(games([HIGH, LOW], [LOW, HIGH]))
    assert undecided.kind == "open"
    assert re.search(r"80% power: \d+% probability of improvement", undecided.power)
    assert conclude_one(games([HIGH[:2]], [LOW[:2]])).kind == "too few"
    assert "one seed" in conclude_one(games([HIGH, HIGH[:1]], [LOW, LOW])).words
    assert conclude_one(games([], [])).kind == "too few"


def test_the_smallest_p_value_by_hand():
    """Two of C(6, 3) = 20 ways, of C(8, 4) = 70, and of 20 x 20 for two games."""
    assert smallest_p_value([(3, 3)]) == 0.1
    assert smallest_p_value([(4, 4)]) == pytest.approx(2 / 70)
    assert smallest_p_value([(3, 3)] * 2) == pytest.approx(1 / 200)
    assert smallest_p_value([(1, 1)]) == 1


def test_numbers_and_percentages_as_text():
    assert [format_number(value) for value in (1234.6, 99.87, 0.012345, -3.0, 0.0)] == ["1,235", "99.9", "0.0123", "-3", "0"]
    assert [format_percent(value) for value in (1.0, 0.1, 0.0794, 0.00794)] == ["100%", "10%", "7.9%", "0.79%"]
