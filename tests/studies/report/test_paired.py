"""Paired differences against values computed by hand; and that trials of one seed are pairs at all."""

import numpy as np
import pytest
import torch

from actors.serial_pool import SerialPool
from learners.learner import Learner
from studies.report.estimates import Estimate
from studies.report.paired import compare_paired, sign_flip_p_value


def sample(*scores, first_seed=1):
    return dict(enumerate(scores, start=first_seed))


@pytest.mark.parametrize("task", ["reward_prediction", "pixel_control", "gvf", "reverse_gvf", "random_gvf"])
def test_trials_of_one_seed_start_from_the_same_weights_and_games(make_config, task):
    """The same weights of the agent, and, played with them, the same games."""
    first, second, other = (
        (config, SerialPool(config)) for config in (make_config(), make_config(task=task), make_config(task=task, seed=2))
    )
    learners = [Learner(config, pool.spec) for config, pool in (first, second, other)]
    batches = []
    for learner, (_, pool) in zip(learners, (first, second, other), strict=True):
        pool.publish(learner.weights(), learner.version)
        batches.append([pool.next_batch() for _ in range(3)])
        pool.close()
    for name, weights in learners[0].agent.state_dict().items():
        assert torch.equal(weights, learners[1].agent.state_dict()[name]), name
    assert not torch.equal(learners[0].weights(), learners[2].weights())
    for ours, theirs in zip(batches[0], batches[1], strict=True):
        assert torch.equal(ours.frames, theirs.frames)
        assert torch.equal(ours.action, theirs.action)
    assert not all(torch.equal(ours.frames, theirs.frames) for ours, theirs in zip(batches[0], batches[2], strict=True))


def test_sign_flips_by_hand():
    """Of 8 patterns of signs two have a sum of 6; of 32 two; differences of 0 leave nothing to be flipped."""
    assert sign_flip_p_value([np.array([1.0, 2.0, 3.0])]) == 2 / 8
    assert sign_flip_p_value([np.array([1.0, 2.0, -3.0])]) == 1
    # |sum| of 1, 2 and 4 with signs is 1, 3, 5 or 7, two patterns each; 4 + 2 - 1 is 5.
    assert sign_flip_p_value([np.array([-1.0, 2.0, 4.0])]) == 4 / 8
    assert sign_flip_p_value([np.full(5, 0.1)]) == 2 / 32
    assert sign_flip_p_value([np.zeros(4)]) == 1


def test_sign_flips_weight_games_equally():
    """Terms of 1/4, 1/4 and 3/2: only equal signs make 2; with one of the others against it 3/2 is met by 6 of 8 patterns."""
    assert sign_flip_p_value([np.array([1.0, 1.0]), np.array([3.0])]) == 2 / 8
    assert sign_flip_p_value([np.array([1.0, -1.0]), np.array([3.0])]) == 6 / 8


def test_random_signs_approximate_the_exact_test():
    """For 20 equal differences the number of positive signs is binomial."""
    differences = np.array([1.0] * 14 + [-1.0] * 6)
    exact = 2 * sum(float(np.prod(np.arange(20 - k + 1, 21) / np.arange(1, k + 1))) for k in range(7)) / 2**20
    assert sign_flip_p_value([differences]) == pytest.approx(exact, abs=0.01)


def test_pairs_are_matched_by_seed():
    found = compare_paired([{3: 5.0, 1: 1.0, 2: 9.0}], [{2: 8.0, 3: 4.0, 7: 100.0}], normalise=False)
    assert found.estimate == Estimate(1.0, 1.0, 1.0)
    assert (found.pairs, found.p_value) == (2, 2 / 4)
    assert compare_paired([sample(1.0, 2.0)], [sample(1.0, 2.0, first_seed=2)], normalise=False) is None


def test_pairing_removes_the_variance_between_seeds():
    """The seeds differ by hundreds, the agents by one each time: unpaired this is lost in the noise."""
    base = np.array([100.0, 500.0, 300.0, 900.0, 700.0, 200.0])
    found = compare_paired([sample(*(base + 1))], [sample(*base)], normalise=False)
    assert found.estimate == Estimate(1.0, 1.0, 1.0)
    assert found.p_value == 2 / 64


def test_the_interval_is_that_of_the_mean_difference():
    """By the central limit theorem: the mean plus or minus 1.96 standard errors."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(1, 2, 400), rng.normal(0, 1, 400)
    found = compare_paired([sample(*x)], [sample(*y)], normalise=False)
    error = 1.96 * (x - y).std() / 20
    expected = [found.estimate.value - error, found.estimate.value + error]
    assert [found.estimate.low, found.estimate.high] == pytest.approx(expected, abs=0.02)
    assert found.estimate.value == pytest.approx((x - y).mean())


def test_games_are_normalised_and_weighted_equally():
    """3, 5, 1, 1 have a variance of 11/3 and 30, 50, 10, 10 a hundred times that: both differ by 3 over its root."""
    x, y = [sample(3.0, 5.0), sample(30.0, 50.0)], [sample(1.0, 1.0), sample(10.0, 10.0)]
    effect = 3 / (11 / 3) ** 0.5
    found = compare_paired(x, y, normalise=True)
    assert found.estimate.value == pytest.approx(effect)
    assert found.pairs == 4
    assert found.p_value == 2 / 16
    # Each game's mean of two pairs is 2, 3 or 4 over the root; both are resampled independently.
    assert found.estimate.low == pytest.approx(effect * 2 / 3)
    assert found.estimate.high == pytest.approx(effect * 4 / 3)
    mixed = compare_paired([x[0], y[1]], [y[0], x[1]], normalise=True)
    assert mixed.estimate.value == pytest.approx(0)


def test_equal_scores_have_no_standard_deviation():
    same = [sample(2.0, 2.0, 2.0)]
    found = compare_paired(same, same, normalise=True)
    assert found.estimate == Estimate(0.0, 0.0, 0.0)
    assert found.p_value == 1
