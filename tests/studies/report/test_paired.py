"""Differences seed by seed, against values worked out by hand; and that trials of one seed are pairs at all."""

import numpy as np
import pytest
import torch

from actors.serial_pool import SerialPool
from learners.learner import Learner
from studies.report.estimates import Estimate
from studies.report.paired import compare_pairs, sign_flip_probability


def sample(*scores, first_seed=1):
    return dict(enumerate(scores, start=first_seed))


@pytest.mark.parametrize("task", ["reward_prediction", "pixel_control", "gvf", "reverse_gvf", "random_gvf"])
def test_trials_of_one_seed_begin_alike_whatever_their_task(make_config, task):
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
    assert sign_flip_probability([np.array([1.0, 2.0, 3.0])]) == 2 / 8
    assert sign_flip_probability([np.array([1.0, 2.0, -3.0])]) == 1
    # |sum| of 1, 2 and 4 with signs is 1, 3, 5 or 7, two patterns each; 4 + 2 - 1 is 5.
    assert sign_flip_probability([np.array([-1.0, 2.0, 4.0])]) == 4 / 8
    assert sign_flip_probability([np.full(5, 0.1)]) == 2 / 32
    assert sign_flip_probability([np.zeros(4)]) == 1


def test_sign_flips_weigh_games_alike():
    """Terms of 1/4, 1/4 and 3/2: only equal signs make 2; with one of the others against it 3/2 is met by 6 of 8 patterns."""
    assert sign_flip_probability([np.array([1.0, 1.0]), np.array([3.0])]) == 2 / 8
    assert sign_flip_probability([np.array([1.0, -1.0]), np.array([3.0])]) == 6 / 8


def test_random_signs_come_near_to_all_of_them():
    """For 20 equal differences the number of positive signs is binomial."""
    differences = np.array([1.0] * 14 + [-1.0] * 6)
    exact = 2 * sum(float(np.prod(np.arange(20 - k + 1, 21) / np.arange(1, k + 1))) for k in range(7)) / 2**20
    assert sign_flip_probability([differences]) == pytest.approx(exact, abs=0.01)


def test_pairs_are_made_by_seed_and_not_by_place():
    found = compare_pairs([{3: 5.0, 1: 1.0, 2: 9.0}], [{2: 8.0, 3: 4.0, 7: 100.0}], normalise=False)
    assert found.estimate == Estimate(1.0, 1.0, 1.0)
    assert (found.pairs, found.chance) == (2, 2 / 4)
    assert compare_pairs([sample(1.0, 2.0)], [sample(1.0, 2.0, first_seed=2)], normalise=False) is None


def test_pairs_take_out_what_they_share():
    """The seeds differ by hundreds, the agents by one each time: unpaired nothing can be seen."""
    base = np.array([100.0, 500.0, 300.0, 900.0, 700.0, 200.0])
    found = compare_pairs([sample(*(base + 1))], [sample(*base)], normalise=False)
    assert found.estimate == Estimate(1.0, 1.0, 1.0)
    assert found.chance == 2 / 64


def test_the_interval_is_that_of_the_mean_difference():
    """By the central limit theorem: the mean plus or minus 1.96 standard errors."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(1, 2, 400), rng.normal(0, 1, 400)
    found = compare_pairs([sample(*x)], [sample(*y)], normalise=False)
    error = 1.96 * (x - y).std() / 20
    expected = [found.estimate.value - error, found.estimate.value + error]
    assert [found.estimate.low, found.estimate.high] == pytest.approx(expected, abs=0.02)
    assert found.estimate.value == pytest.approx((x - y).mean())


def test_games_are_measured_in_standard_deviations_and_count_alike():
    """3, 5, 1, 1 have a variance of 11/3 and 30, 50, 10, 10 a hundred times that: both differ by 3 over its root."""
    x, y = [sample(3.0, 5.0), sample(30.0, 50.0)], [sample(1.0, 1.0), sample(10.0, 10.0)]
    effect = 3 / (11 / 3) ** 0.5
    found = compare_pairs(x, y, normalise=True)
    assert found.estimate.value == pytest.approx(effect)
    assert found.pairs == 4
    assert found.chance == 2 / 16
    # Each game's mean of two pairs is 2, 3 or 4 over the root; both are drawn on their own.
    assert found.estimate.low == pytest.approx(effect * 2 / 3)
    assert found.estimate.high == pytest.approx(effect * 4 / 3)
    mixed = compare_pairs([x[0], y[1]], [y[0], x[1]], normalise=True)
    assert mixed.estimate.value == pytest.approx(0)


def test_equal_scores_have_no_spread_to_be_measured_in():
    same = [sample(2.0, 2.0, 2.0)]
    found = compare_pairs(same, same, normalise=True)
    assert found.estimate == Estimate(0.0, 0.0, 0.0)
    assert found.chance == 1
