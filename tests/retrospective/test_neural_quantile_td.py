"""Distributional Reverse TD with a network."""

import numpy as np
import pytest
import torch

from retrospective.neural_quantile_td import NeuralQuantileTD, ReplayBuffer
from retrospective.quantile_td import midpoints


def weighted_loss(prediction, target, weight, kappa):
    """Every pair written out: |tau_i - 1{u < 0}| H(u), H(u) = u^2 / 2 kappa inside kappa and |u| - kappa / 2 outside."""
    count, total = prediction.shape[1], 0.0
    for b in range(len(prediction)):
        for i in range(count):
            for j in range(count):
                u = target[b, j] - prediction[b, i]
                huber = u**2 / (2 * kappa) if abs(u) <= kappa else abs(u) - kappa / 2
                total = total + weight[b] * abs((2 * i + 1) / (2 * count) - float(u < 0)) * huber
    return total / prediction.numel() / count


def test_the_gradient_of_an_update_is_that_of_the_loss_written_out():
    learner = NeuralQuantileTD(2, num_quantiles=4, hidden=(8,), batch_size=5, kappa=0.5, seed=1)
    rng = np.random.default_rng(0)
    learner.observe(*rng.normal(size=(2, 5, 2)), 2 * rng.normal(size=5), rng.random(5), rng.random(5))
    states, scalars = learner._replay.sample(5, np.random.default_rng(1))  # Its own generator has this seed.
    reward, discount, weight = scalars.unbind(1)
    target = (reward[:, None] + discount[:, None] * learner.network(states[:, 0])).detach()
    loss = weighted_loss(learner.network(states[:, 1]), target, weight, kappa=0.5)
    expected = torch.autograd.grad(loss, list(learner.network.parameters()))
    learner.update()
    for parameter, gradient in zip(learner.network.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def test_the_replay_buffer_keeps_the_newest_transitions():
    replay = ReplayBuffer(capacity=4, state_size=1)
    for t in range(7):
        replay.add(np.array([[t]]), np.array([[t + 1]]), np.array([[10 * t, 1.0, 0.5]]))
    assert len(replay) == 4
    states, scalars = replay.sample(200, np.random.default_rng(0))
    assert set(states[:, 0, 0].tolist()) == {3, 4, 5, 6}
    assert torch.equal(states[:, 1], states[:, 0] + 1)
    assert torch.equal(scalars[:, 0], 10 * states[:, 0, 0])


def test_there_is_no_update_before_the_buffer_holds_a_batch():
    learner = NeuralQuantileTD(1, batch_size=3)
    changed = []
    for _ in range(3):
        learner.observe(np.zeros(1), np.ones(1), 1.0, 0.0)
        before = learner.quantiles(np.ones(1))
        learner.update()
        changed.append(not np.array_equal(before, learner.quantiles(np.ones(1))))
    assert changed == [False, False, True]


@pytest.mark.parametrize(("syncs", "followed"), [(None, 3), (1, 1), (0, 0)])
def test_the_target_network_is_synchronised_at_its_interval_up_to_the_limit(syncs, followed):
    learner = NeuralQuantileTD(1, batch_size=1, target_interval=3, target_syncs=syncs)
    learner.observe(np.zeros(1), np.ones(1), 5.0, 0.0)
    same = []
    for _ in range(9):
        learner.update()
        pairs = zip(learner.network.parameters(), learner._target.parameters(), strict=True)
        same.append(all(torch.equal(p, q) for p, q in pairs))
    assert same == [False, False, True] * followed + [False] * (9 - 3 * followed)


def test_targets_bootstrap_from_the_previous_state():
    """0 -> 1 -> 0 -> ..., reward 1 into state 1 and 0 into state 0, discount .5: v(1) = 4/3, v(0) = 2/3."""
    learner = NeuralQuantileTD(2, num_quantiles=4, hidden=(16,), batch_size=16, target_interval=20)
    x = np.eye(2)
    for _ in range(8):
        learner.observe(x[0], x[1], 1.0, 0.5)
        learner.observe(x[1], x[0], 0.0, 0.5)
    for _ in range(1500):
        learner.update()
    assert np.allclose(learner.quantiles(x).mean(-1), [2 / 3, 4 / 3], atol=0.02)


def test_quantiles_are_recovered_under_importance_weights():
    """Rewards of +1 (behaviour 50%, target 90%) or 0: of the target's quantiles nine in ten are 1."""
    learner = NeuralQuantileTD(1, num_quantiles=10, hidden=(16,), kappa=0.0, learning_rate=2e-3, capacity=4000)
    rng = np.random.default_rng(1)
    high = rng.random(4000) < 0.5
    one = np.ones((4000, 1))
    learner.observe(one, one, high.astype(float), 0.0, np.where(high, 0.9 / 0.5, 0.1 / 0.5))
    for _ in range(2500):
        learner.update()
    assert np.allclose(learner.quantiles(np.ones(1)), midpoints(10) > 0.1, atol=0.15)


def test_learning_is_deterministic_given_the_seed():
    def train():
        learner = NeuralQuantileTD(1, batch_size=2, seed=3)
        for t in range(5):
            learner.observe(np.array([t]), np.array([t + 1]), 1.0, 0.9)
            learner.update()
        return learner.quantiles(np.array([0.5]))

    assert np.array_equal(train(), train())


def test_a_replay_buffer_smaller_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="at least the batch size"):
        NeuralQuantileTD(1, capacity=10, batch_size=11)


def test_transitions_that_are_not_finite_are_refused():
    learner = NeuralQuantileTD(1)
    with pytest.raises(ValueError, match="reward, discount, weight"):
        learner.observe(np.zeros(1), np.zeros(1), np.nan, 1.0)
    with pytest.raises(ValueError, match="not finite"):
        learner.observe(np.array([np.inf]), np.zeros(1), 0.0, 1.0)
