import numpy as np
import pytest

from studies.statistics import area_under_curve, bootstrap_interval, mean, probability_of_improvement


def test_probability_of_improvement_by_hand():
    """Pairs: 3 > 1, 3 > 2, 3 = 3 and 1 = 1, 1 < 2, 1 < 3."""
    assert probability_of_improvement(np.array([3.0, 1.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(3 / 6)
    assert probability_of_improvement(np.array([5.0]), np.array([1.0, 2.0])) == 1
    assert probability_of_improvement(np.array([1.0, 1.0]), np.array([1.0])) == 0.5


def test_the_interval_of_a_mean_is_that_of_the_normal_approximation():
    sample = np.random.default_rng(1).normal(2.0, 3.0, size=400)
    low, high = bootstrap_interval(mean, sample)
    error = sample.std() / np.sqrt(400)
    assert low == pytest.approx(sample.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(sample.mean() + 1.96 * error, abs=0.15 * error)


def test_intervals_keep_the_shape_and_the_seed():
    curves = np.random.default_rng(0).normal(size=(5, 7))
    low, high = bootstrap_interval(mean, curves)
    assert low.shape == high.shape == (7,)
    assert (low <= curves.mean(0)).all()
    assert (curves.mean(0) <= high).all()
    assert np.array_equal(low, bootstrap_interval(mean, curves)[0])
    assert not np.array_equal(low, bootstrap_interval(mean, curves, seed=1)[0])


def test_one_seed_has_an_interval_of_zero_width():
    assert bootstrap_interval(mean, np.array([4.0])) == (4.0, 4.0)


def test_two_samples_are_resampled_independently():
    low, high = bootstrap_interval(lambda x, y: x.mean() - y.mean(), np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    assert low == -1
    assert high == 1


def test_area_under_a_curve():
    assert area_under_curve(np.array([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]])).tolist() == [1, 3]
