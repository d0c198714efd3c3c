"""Distributional Reverse TD with a network."""

import numpy as np
import pytest
import torch

from learners.neural_quantile_td import NeuralQuantileTD, Replay, quantile_huber_loss
from learners.quantile_td import midpoints, quantile_huber_gradient


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0])
def test_the_loss_has_the_gradient_of_the_linear_learner(kappa):
    rng = np.random.default_rng(0)
    prediction = torch.from_numpy(rng.normal(size=(6, 5)) * 2).requires_grad_()
    target = torch.from_numpy(rng.normal(size=(6, 7)) * 2)
    (gradient,) = torch.autograd.grad(quantile_huber_loss(prediction, target, kappa).sum(), prediction)
    expected = quantile_huber_gradient(prediction.detach().numpy(), target.numpy(), kappa) / 5
    assert np.allclose(gradient.numpy(), expected, atol=1e-12)


def test_the_loss_by_hand():
    """Two quantiles at tau .25 and .75, one target above and one below: |tau - 1{u < 0}| H(u)."""
    loss = quantile_huber_loss(torch.tensor([0.0, 2.0]), torch.tensor([0.5, 3.5]), kappa=1.0)
    pairs = [0.25 * 0.125, 0.25 * 3.0, 0.25 * 1.0, 0.75 * 1.0]  # u = .5, 3.5, -1.5, 1.5
    assert float(loss) == pytest.approx(sum(pairs) / 4)


def test_replay_keeps_the_newest_and_which_end_is_which():
    replay = Replay(capacity=4, state_size=1)
    for t in range(7):
        replay.add(np.array([[t]]), np.array([[t + 1]]), np.array([[10 * t, 1.0, 0.5]]))
    assert len(replay) == 4
    states, scalars = replay.sample(200, torch.Generator().manual_seed(0))
    assert set(states[:, 0, 0].tolist()) == {3, 4, 5, 6}
    assert torch.equal(states[:, 1], states[:, 0] + 1)
    assert torch.equal(scalars[:, 0], 10 * states[:, 0, 0])


def test_nothing_is_learnt_before_there_is_a_batch():
    learner = NeuralQuantileTD(1, batch_size=3)
    for _ in range(2):
        learner.observe(np.zeros(1), np.ones(1), 1.0, 0.0)
        assert learner.update() is None
    learner.observe(np.zeros(1), np.ones(1), 1.0, 0.0)
    assert learner.update() > 0


def test_the_target_network_follows_at_its_interval_again_and_again():
    learner = NeuralQuantileTD(1, batch_size=1, target_interval=3)
    learner.observe(np.zeros(1), np.ones(1), 5.0, 0.0)
    same = []
    for _ in range(9):
        learner.update()
        pairs = zip(learner.network.parameters(), learner._target.parameters(), strict=True)
        same.append(all(torch.equal(p, q) for p, q in pairs))
    assert same == [False, False, True] * 3


def test_bootstraps_come_from_the_earlier_state():
    """0 -> 1 -> 0 -> ..., reward 1 into state 1 and 0 into state 0, discount .5: v(1) = 4/3, v(0) = 2/3."""
    learner = NeuralQuantileTD(2, num_quantiles=4, hidden=(16,), batch_size=16, target_interval=20)
    x = np.eye(2)
    for _ in range(8):
        learner.observe(x[0], x[1], 1.0, 0.5)
        learner.observe(x[1], x[0], 0.0, 0.5)
    for _ in range(1500):
        learner.update()
    assert np.allclose(learner.quantiles(x).mean(-1), [2 / 3, 4 / 3], atol=0.02)


def test_it_recovers_the_quantiles_of_noise_and_weights_choose_whose():
    """Rewards of +1 (behaviour 50%, target 90%) or 0: of the target's quantiles nine in ten are 1."""
    learner = NeuralQuantileTD(1, num_quantiles=10, hidden=(16,), kappa=0.0, learning_rate=2e-3, capacity=4000)
    rng = np.random.default_rng(1)
    high = rng.random(4000) < 0.5
    one = np.ones((4000, 1))
    learner.observe(one, one, high.astype(float), 0.0, np.where(high, 0.9 / 0.5, 0.1 / 0.5))
    for _ in range(2500):
        learner.update()
    assert np.allclose(learner.quantiles(np.ones(1)), midpoints(10) > 0.1, atol=0.15)


def test_a_seed_fixes_everything():
    def train():
        learner = NeuralQuantileTD(1, batch_size=2, seed=3)
        for t in range(5):
            learner.observe(np.array([t]), np.array([t + 1]), 1.0, 0.9)
            learner.update()
        return learner.quantiles(np.array([0.5]))

    assert np.array_equal(train(), train())


def test_a_replay_smaller_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="never holds a batch"):
        NeuralQuantileTD(1, capacity=10, batch_size=11)


def test_a_transition_that_is_no_number_is_refused():
    learner = NeuralQuantileTD(1)
    with pytest.raises(ValueError, match="reward, discount, weight"):
        learner.observe(np.zeros(1), np.zeros(1), np.nan, 1.0)
    with pytest.raises(ValueError, match="no number"):
        learner.observe(np.array([np.inf]), np.zeros(1), 0.0, 1.0)
