"""Words that never say more than the numbers."""

import numpy as np
import pytest

from studies.report.verdicts import Row, figure, judge, least_chance, percent

HIGH, LOW = [6.0, 7.0, 8.0, 9.0, 7.5], [1.0, 2.0, 3.0, 4.0, 2.5]


def sample(scores):
    return dict(enumerate(scores))


def game(x, y):
    return Row([sample(x)], [sample(y)])


def games(x, y):
    return Row([sample(scores) for scores in x], [sample(scores) for scores in y], over_games=True)


def judge_one(row):
    (verdict,) = judge([row])
    return verdict


def test_five_seeds_far_apart_are_told_apart():
    better, worse = judge_one(game(HIGH, LOW)), judge_one(game(LOW, HIGH))
    assert (better.kind, worse.kind) == ("better", "worse")
    assert better.words == f"better by {figure(better.estimate.low)} to {figure(better.estimate.high)}"
    assert worse.words == f"worse by {figure(-worse.estimate.high)} to {figure(-worse.estimate.low)}"
    assert better.chance == better.corrected == pytest.approx(2 / 252)
    assert better.power == ""


def test_pairs_are_told_beside_and_decide_nothing():
    verdict = judge_one(game(HIGH, LOW))
    assert verdict.paired.estimate.value == 5
    assert verdict.paired.chance == 2 / 32  # More than a twentieth.
    assert verdict.kind == "better"
    assert judge_one(games([HIGH, HIGH], [LOW, LOW])).paired.pairs == 10


def test_three_seeds_say_nothing_however_far_apart():
    verdict = judge_one(game(HIGH[:3], LOW[:3]))
    assert verdict.kind == "too few"
    assert "3 against 3 seeds" in verdict.words
    assert verdict.words.endswith("chance does that 10% of the time")
    assert verdict.estimate.low > 0  # The bootstrap alone would have claimed it.
    assert verdict.power == "to show the 5 that was seen takes about 4 seeds of each"


def test_one_seed_and_none():
    assert judge_one(game(HIGH[:1], LOW)).words == "one seed shows nothing (1 against 5 seeds)"
    assert judge_one(game(HIGH, [])).words == "no finished trials to compare"


def test_no_difference_is_said_with_what_it_may_be():
    verdict = judge_one(game([1.0, 5.0, 3.0, 2.0], [2.0, 4.0, 3.0, 1.5]))
    assert verdict.kind == "open"
    assert "anywhere from -" in verdict.words
    assert judge_one(game(HIGH, HIGH)).kind == "open"
    same = judge_one(game(np.ones(5), np.ones(5)))
    assert (same.words, same.power) == ("no difference shown: it may lie anywhere from 0 to 0", "")


def test_an_interval_alone_is_not_enough():
    """The means differ for sure, but the order of the runs is one that chance makes often."""
    verdict = judge_one(game([2.0, 2.1, 2.2, 30.0], [1.0, 1.5, 2.05, 2.15]))
    assert verdict.estimate.low > 0
    assert verdict.chance > 0.05
    assert verdict.kind == "open"
    assert "the interval excludes 0, but chance" in verdict.words


def test_what_one_row_shows_many_may_not():
    """2/252 for each of 6 rows is 0.048, of 7 rows 0.056."""
    clear = game(HIGH, LOW)
    assert {verdict.kind for verdict in judge([clear] * 6)} == {"better"}
    seven = judge([clear] * 7)
    assert {verdict.kind for verdict in seven} == {"too few"}
    assert seven[0].corrected == pytest.approx(7 * 2 / 252)
    assert seven[0].words.endswith("0.79% of the time, and up to 5.6% of the time in one of the table's 7 rows")
    # Rows that were not tested are not counted.
    assert judge([clear] * 6 + [game(HIGH, [])] * 9)[0].kind == "better"


def test_what_could_have_been_shown_but_was_not_after_correction():
    """Six seeds could show it in four rows; an order that chance makes 1.5% of the time is not clear enough."""
    rng = np.random.default_rng(0)
    blurred = game([5.0, 6.0, 7.0, 8.0, 9.0, 2.5], [1.0, 2.0, 3.0, 4.0, 0.0, 5.5])
    rows = [blurred, *(game(rng.normal(0, 1, 6), rng.normal(0, 1, 6)) for _ in range(3))]
    alone, among = judge_one(blurred), judge(rows)[0]
    assert (alone.kind, among.kind) == ("better", "open")
    assert alone.chance == among.chance <= 0.05 < among.corrected
    assert "in one of the table's 4 rows" in among.words


def test_power_in_words():
    """Spread 1 (variance 10/10 within), difference 0.1: 2 (1.96 + 0.84)^2 / 0.01 + 1 seeds; 2.8 sqrt(2/(6 - 0.96)) shown."""
    x = np.array([-1.0, -1.0, 0.0, 0.0, 1.0, 1.0]) * (10 / 8) ** 0.5
    verdict = judge_one(game(x + 0.1, x))
    assert verdict.kind == "open"
    assert verdict.power == (
        "with this spread a difference of 1.76 would be shown 80% of the time;"
        " to show the 0.1 that was seen takes about 1,571 seeds of each"
    )
    several = judge([game(x + 0.1, x)] * 2)[0]
    assert several.power != verdict.power  # More rows ask for more.


def test_games_together():
    verdict = judge_one(games([HIGH[:3], HIGH[:3]], [LOW[:3], LOW[:3]]))
    assert (verdict.kind, verdict.words) == ("better", "a run of it is the better one 100% to 100% of the time")
    assert judge_one(games([LOW, LOW], [HIGH, HIGH])).kind == "worse"
    undecided = judge_one(games([HIGH, LOW], [LOW, HIGH]))
    assert undecided.kind == "open"
    assert "of runs being better would be shown 80% of the time" in undecided.power
    assert judge_one(games([HIGH[:2]], [LOW[:2]])).kind == "too few"
    assert "one seed" in judge_one(games([HIGH, HIGH[:1]], [LOW, LOW])).words
    assert judge_one(games([], [])).kind == "too few"


def test_the_least_chance_by_hand():
    """Two of C(6, 3) = 20 ways, of C(8, 4) = 70, and of 20 x 20 for two games."""
    assert least_chance([(3, 3)]) == 0.1
    assert least_chance([(4, 4)]) == pytest.approx(2 / 70)
    assert least_chance([(3, 3)] * 2) == pytest.approx(1 / 200)
    assert least_chance([(1, 1)]) == 1


def test_figures():
    assert [figure(value) for value in (1234.6, 99.87, 0.012345, -3.0, 0.0)] == ["1,235", "99.9", "0.0123", "-3", "0"]
    assert [percent(value) for value in (1.0, 0.1, 0.0794, 0.00794)] == ["100%", "10%", "7.9%", "0.79%"]
