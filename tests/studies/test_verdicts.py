"""Words that never say more than the numbers."""

import numpy as np
import pytest

from studies.verdicts import figure, judge_game, judge_games, least_chance

HIGH, LOW = np.array([6.0, 7.0, 8.0, 9.0, 7.5]), np.array([1.0, 2.0, 3.0, 4.0, 2.5])


def test_five_seeds_far_apart_are_told_apart():
    better, worse = judge_game(HIGH, LOW), judge_game(LOW, HIGH)
    assert (better.kind, worse.kind) == ("better", "worse")
    assert better.words == f"better by {figure(better.estimate.low)} to {figure(better.estimate.high)}"
    assert worse.words == f"worse by {figure(-worse.estimate.high)} to {figure(-worse.estimate.low)}"
    assert better.chance == pytest.approx(2 / 252, abs=0.003)


def test_three_seeds_say_nothing_however_far_apart():
    verdict = judge_game(HIGH[:3], LOW[:3])
    assert verdict.kind == "too few"
    assert "3 against 3 seeds" in verdict.words
    assert "10% of the time" in verdict.words
    assert verdict.estimate.low > 0  # The bootstrap alone would have claimed it.


def test_one_seed_and_none():
    assert judge_game(HIGH[:1], LOW).words == "one seed shows nothing (1 against 5 seeds)"
    assert judge_game(HIGH, np.array([])).words == "no finished trials to compare"


def test_no_difference_is_said_with_what_it_may_be():
    verdict = judge_game(np.array([1.0, 5.0, 3.0, 2.0]), np.array([2.0, 4.0, 3.0, 1.5]))
    assert verdict.kind == "open"
    assert "anywhere from -" in verdict.words
    assert judge_game(HIGH, HIGH).kind == "open"
    assert judge_game(np.ones(5), np.ones(5)).words == "no difference shown: it may lie anywhere from 0 to 0"


def test_an_interval_alone_is_not_enough():
    """The means differ for sure, but the order of the runs is one that chance makes often."""
    verdict = judge_game(np.array([2.0, 2.1, 2.2, 30.0]), np.array([1.0, 1.5, 2.05, 2.15]))
    assert verdict.estimate.low > 0
    assert verdict.chance > 0.05
    assert verdict.kind == "open"
    assert "the interval leaves out 0, but chance" in verdict.words


def test_games_together():
    verdict = judge_games([HIGH[:3], HIGH[:3]], [LOW[:3], LOW[:3]])
    assert (verdict.kind, verdict.words) == ("better", "a run of it is the better one 100% to 100% of the time")
    assert judge_games([LOW, LOW], [HIGH, HIGH]).kind == "worse"
    assert judge_games([HIGH, LOW], [LOW, HIGH]).kind == "open"
    assert judge_games([HIGH[:2]], [LOW[:2]]).kind == "too few"
    assert "one seed" in judge_games([HIGH, HIGH[:1]], [LOW, LOW]).words
    assert judge_games([], []).kind == "too few"


def test_the_least_chance_by_hand():
    """Two of C(6, 3) = 20 ways, of C(8, 4) = 70, and of 20 x 20 for two games."""
    assert least_chance([HIGH[:3]], [LOW[:3]]) == 0.1
    assert least_chance([HIGH[:4]], [LOW[:4]]) == pytest.approx(2 / 70)
    assert least_chance([HIGH[:3]] * 2, [LOW[:3]] * 2) == pytest.approx(1 / 200)
    assert least_chance([HIGH[:1]], [LOW[:1]]) == 1


def test_figures():
    assert [figure(value) for value in (1234.6, 99.87, 0.012345, -3.0, 0.0)] == ["1,235", "99.9", "0.0123", "-3", "0"]
