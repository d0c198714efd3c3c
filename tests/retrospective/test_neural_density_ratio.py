"""The density ratio with a network, against stationary distributions."""

import math

import numpy as np
import pytest
import torch

from retrospective.finite_mdp import density_ratio, importance_ratio
from retrospective.neural_density_ratio import UNIT_BIAS, NeuralDensityRatio
from retrospective.neural_quantile_td import NeuralQuantileTD
from tests.retrospective.test_finite_mdp import random_mdp, streams_of


def test_the_ratio_matches_the_stationary_distributions():
    mdp, target = random_mdp(3)
    behaviour = np.full((3, 2), 0.5)
    rho, tau = importance_ratio(mdp, target, behaviour), density_ratio(mdp, target, behaviour)
    learner = NeuralDensityRatio(3, hidden=(16,), learning_rate=5e-3, batch_size=256, target_interval=20)
    x = np.eye(3)
    for s, a, t in streams_of(mdp, behaviour, 100, 100, 0):
        learner.observe(x[s], x[t], rho[s, a])
    found = np.zeros(3)
    for update in range(1200):
        learner.update()
        if update >= 800:
            found += learner(torch.eye(3)).numpy() / 400
    assert np.abs(tau - 1).max() > 0.1
    assert found == pytest.approx(tau, abs=0.05)


def test_the_ratio_of_equal_policies_begins_at_one_and_stays_there():
    assert math.log1p(math.exp(UNIT_BIAS)) == pytest.approx(1)
    learner = NeuralDensityRatio(2, batch_size=8)
    rng = np.random.default_rng(0)
    learner.observe(rng.normal(size=(64, 2)), rng.normal(size=(64, 2)), 1.0)
    for _ in range(200):
        learner.update()
    assert learner(torch.randn(50, 2)).numpy() == pytest.approx(1, abs=0.15)


def test_there_is_no_update_before_the_buffer_holds_a_batch():
    learner = NeuralDensityRatio(1, batch_size=2)
    before = learner(torch.ones(1))
    learner.observe(np.zeros(1), np.ones(1), 3.0)
    learner.update()
    assert torch.equal(learner(torch.ones(1)), before)


def test_a_ratio_of_zero_removes_transitions_from_the_quantiles():
    """Rewards of 1 from state 0 and 5 from state 1, as often; with tau = (2, 0) only the first count."""
    learner = NeuralQuantileTD(1, num_quantiles=2, hidden=(8,), batch_size=32, kappa=1.0)
    before = np.repeat([[0.0], [1.0]], 32, axis=0)
    learner.observe(before, np.full((64, 1), 0.5), 1.0 + 4.0 * before[:, 0], 0.0)
    for _ in range(600):
        learner.update(lambda states: 2.0 * (states[:, 0] == 0))
    assert learner.quantiles(np.array([0.5])) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("state", "rho"), [(np.nan, 1.0), (0.0, -1.0), (0.0, np.inf)])
def test_invalid_transitions_are_refused(state, rho):
    with pytest.raises(ValueError, match="not finite, or its ratio is negative"):
        NeuralDensityRatio(1).observe(np.zeros(1), np.array([state]), rho)


def test_a_replay_buffer_smaller_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="at least the batch size"):
        NeuralDensityRatio(1, capacity=10, batch_size=11)
