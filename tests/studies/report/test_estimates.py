"""Statistics of sweeps, against values computed by hand and against rliable's."""

from itertools import combinations

import numpy as np
import pytest
from rliable import library, metrics

from studies.report import estimates
from studies.report.estimates import (
    Estimate,
    difference_estimate,
    estimate,
    holm_correction,
    improvement,
    interquartile_mean,
    mean_estimate,
    mean_probability_of_improvement,
    mean_ratio,
    performance_profile,
    permutation_p_value,
    pooled_interquartile_mean,
    two_sample_estimate,
)

X = np.array([[1.0, 5.0, 2.0], [2.0, 5.0, 2.0], [9.0, 4.0, 2.0], [3.0, 8.0, 1.0]])
Y = np.array([[1.0, 4.0, 2.0], [2.5, 5.0, 2.0], [2.0, 4.0, 2.0], [0.0, 6.0, 1.0]])


def by_game(table):
    """rliable has runs x games in one table, we one array for each game."""
    return list(table.T.copy())


def test_the_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([9.0, 1.0, 3.0, 5.0])) == 4  # 1 and 9 are cut.
    assert interquartile_mean(np.array([7.0, 1.0, 4.0])) == 4  # A quarter of three is less than one: nothing is cut.
    assert interquartile_mean(np.array([5.0])) == 5
    assert interquartile_mean(np.array([0.0, 0, 100, 2, 2, 4, 4, 50])) == 3


def test_point_estimates_are_those_of_rliable():
    assert pooled_interquartile_mean(by_game(X)) == pytest.approx(metrics.aggregate_iqm(X))
    assert mean_probability_of_improvement(by_game(X), by_game(Y)) == pytest.approx(
        metrics.probability_of_improvement(X, Y)
    )  # The third game is all ties.
    thresholds = np.array([0.0, 1.0, 2.0, 4.5, 100.0])
    theirs, _ = library.create_performance_profile({"x": X}, thresholds, reps=2)
    assert performance_profile(by_game(X), thresholds)[0] == pytest.approx(theirs["x"])


def test_confidence_intervals_are_those_of_rliable_up_to_resampling_noise():
    rng = np.random.default_rng(0)
    x, y = rng.normal(1.0, 1.0, (8, 4)), rng.normal(0.5, 1.0, (8, 4))
    np.random.seed(0)  # rliable draws from the global generator.
    _, iqm = library.get_interval_estimates({"x": x}, lambda s: np.array([metrics.aggregate_iqm(s)]), reps=1000)
    ours = estimate(pooled_interquartile_mean, by_game(x))
    assert [ours.low, ours.high] == pytest.approx(iqm["x"][:, 0], abs=0.06)
    _, better = library.get_interval_estimates(
        {"x,y": [x, y]}, lambda a, b: np.array([metrics.probability_of_improvement(a, b)]), reps=300
    )
    ours = two_sample_estimate(mean_probability_of_improvement, by_game(x), by_game(y))
    assert [ours.low, ours.high] == pytest.approx(better["x,y"][:, 0], abs=0.04)


def test_a_missing_trial_is_left_out_and_not_filled_in():
    """Games of 3 and 2 seeds: five runs of which one is cut at each end; pairs 4 of 6 and 1 of 2."""
    scores = [np.array([1.0, 2.0, 9.0]), np.array([3.0, 4.0])]
    assert pooled_interquartile_mean(scores) == 3
    other = [np.array([0.0, 3.0]), np.array([3.5])]
    assert mean_probability_of_improvement(scores, other) == pytest.approx((4 / 6 + 1 / 2) / 2)
    assert estimate(pooled_interquartile_mean, scores).low is not None


def test_one_seed_has_no_interval():
    one, three = np.array([4.0]), np.array([1.0, 2.0, 3.0])
    assert mean_estimate(one) == Estimate(4.0)
    assert difference_estimate(one, three) == Estimate(2.0)
    assert improvement(one, three).estimate == Estimate(1.0)
    assert performance_profile([one, three], np.array([2.5]))[1] is None
    assert estimate(pooled_interquartile_mean, [three, one]).low is None


def test_the_same_scores_give_the_same_interval():
    assert mean_estimate(X[:, 0]) == mean_estimate(X[:, 0].copy())


def test_the_mean_ratio_by_hand():
    x, y = [np.array([2.0, 4.0]), np.array([30.0])], [np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0])]
    assert mean_ratio(x, y) == pytest.approx((3 / 2 + 30 / 20) / 2)
    assert mean_ratio(x[:1], y[:1]) == 1.5
    resampled = mean_ratio([np.array([[2.0, 4.0], [4.0, 4.0]])], [np.array([[1.0, 3.0], [1.0, 1.0]])])
    assert resampled.tolist() == [1.5, 4.0]


def test_improvement_by_hand():
    assert improvement(np.array([3.0, 3.0]), np.array([2.0, 2.0])).estimate == Estimate(0.5, 0.5, 0.5)
    assert improvement(np.array([1.0]), np.array([2.0])).estimate == Estimate(-0.5)


def test_improvement_over_a_negative_baseline_has_the_sign_of_the_difference():
    """Pong from -20 to -15 is better by a quarter, and to -25 worse by one."""
    assert improvement(np.array([-15.0, -15.0]), np.array([-20.0, -20.0])).estimate.value == 0.25
    assert improvement(np.array([-25.0, -25.0]), np.array([-20.0, -20.0])).estimate.value == -0.25


def test_improvement_over_a_baseline_of_zero_is_undefined_and_near_zero_has_no_interval():
    zero = improvement(np.array([1.0, 2.0]), np.array([0.0, 0.0]))
    assert zero.estimate is None
    assert zero.remark == "the baseline's mean is 0"
    assert improvement(np.array([1.0]), np.array([-1.0, 1.0])).estimate is None
    near = improvement(np.array([1.0, 1.0]), np.array([-1.0, 1.5]))
    assert near.estimate == Estimate(pytest.approx(3.0))
    assert "no finite interval" in near.remark


def test_the_interval_of_an_improvement_resamples_both_agents():
    """Both means are resampled: A1 from {2, 4}, A2 from {1, 2}: the ratio spans (2 - 2)/2 to (4 - 1)/1."""
    found = improvement(np.array([2.0, 4.0]), np.array([1.0, 2.0])).estimate
    assert found.value == 1
    assert (found.low, found.high) == (0, 3)


def test_performance_profiles_count_runs_strictly_above_the_threshold():
    value, low, high = performance_profile([np.array([1.0, 2.0]), np.array([2.0, 3.0])], np.array([0.0, 1.0, 2.0, 3.0]))
    assert value.tolist() == [1, 0.75, 0.25, 0]
    assert (low <= value).all()
    assert (value <= high).all()
    assert (low[1], high[1]) == (0.5, 1)


def test_the_permutation_test_by_hand():
    """Of the 20 permutations of six runs two have the three best on one side, and of the 70 of eight runs two as well."""
    assert permutation_p_value([np.array([7.0, 8.0, 9.0])], [np.array([1.0, 2.0, 3.0])]) == pytest.approx(2 / 20)
    four = permutation_p_value([np.array([6.0, 7.0, 8.0, 9.0])], [np.array([1.0, 2.0, 3.0, 4.0])])
    assert four == pytest.approx(2 / 70)
    # 1 and 3 of 1 to 4: of the six assignments {1,2} and {3,4} win 0 and 4 of 4, {1,3} and {2,4} 1 and 3, the others 2.
    assert permutation_p_value([np.array([1.0, 3.0])], [np.array([2.0, 4.0])]) == pytest.approx(4 / 6)


def test_equal_scores_have_a_p_value_of_one():
    same = [np.array([2.0, 2.0, 2.0])]
    assert permutation_p_value(same, same) == 1


def test_two_games_reach_smaller_p_values_than_one():
    """Two games of three seeds: 2 of 400 permutations are as extreme."""
    high, low = np.array([7.0, 8.0, 9.0]), np.array([1.0, 2.0, 3.0])
    assert permutation_p_value([high, high], [low, low]) == pytest.approx(2 / 400)


def test_random_permutations_approximate_the_exact_test(monkeypatch):
    rng = np.random.default_rng(1)
    x, y = [rng.normal(0.5, 1, 6), rng.normal(0, 1, 3)], [rng.normal(0, 1, 5), rng.normal(0, 1, 4).round()]
    monkeypatch.setattr(estimates, "PERMUTATIONS", 462 * 35)
    exact = permutation_p_value(x, y)
    monkeypatch.undo()
    assert 0.05 < exact < 0.95
    assert permutation_p_value(x, y) == pytest.approx(exact, abs=0.015)


def test_ties_share_the_mean_of_their_ranks():
    """The statistic from ranks against the probability of improvement of every permutation."""
    x, y = np.array([1.0, 2.0, 2.0]), np.array([2.0, 0.0])
    observed = abs(float(mean_probability_of_improvement([x], [y])) - 0.5)
    pooled = np.concatenate([x, y])
    found = []
    for ours in combinations(range(5), 3):
        theirs = [i for i in range(5) if i not in ours]
        found.append(abs(float(mean_probability_of_improvement([pooled[list(ours)]], [pooled[theirs]])) - 0.5) >= observed)
    assert permutation_p_value([x], [y]) == pytest.approx(np.mean(found))


def test_holm_correction_by_hand():
    """0.005 x 4, 0.01 x 3, 0.03 x 2 and 0.04 x 1, but never less than the one before, nor more than 1."""
    assert holm_correction([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_correction([0.9, 0.6]) == [1.0, 1.0]
    assert holm_correction([0.04]) == [0.04]
    assert holm_correction([]) == []
