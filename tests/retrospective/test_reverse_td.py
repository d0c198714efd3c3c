"""Every learner against its closed-form fixed point."""

import numpy as np
import pytest

from retrospective.finite_mdp import density_ratio, importance_ratio
from retrospective.quantile_td import QuantileReverseTD, midpoints, quantile_huber_gradient
from retrospective.reverse_td import Constant, DensityRatio, ReverseGTD, ReverseTD, RobbinsMonro
from tests.retrospective.test_finite_mdp import random_mdp, streams_of

STREAMS = 200
FEATURES = np.array([[1.0, 0.0], [0.5, 0.5], [0.2, 1.0]])


def learn(learner, mdp, policy, features, steps, weight=lambda s, a: 1.0, seed=0):
    for s, a, t in streams_of(mdp, policy, STREAMS, steps, seed):
        learner.update(features[s], features[t], mdp.reward[s, a, t], mdp.discount[s, a, t], weight(s, a))
    return learner.weights


def assert_close_to(weights, expected, bias=0.01):
    """The mean over streams lies within five of its own standard errors, and a small bias of finite steps, of `expected`."""
    error = weights.std(0) / np.sqrt(len(weights))
    assert (np.abs(weights.mean(0) - expected) < 5 * error + bias).all()


@pytest.mark.parametrize("features", [np.eye(3), FEATURES], ids=["table", "linear"])
def test_reverse_td_converges_to_its_fixed_point(features):
    mdp, policy = random_mdp(0)
    learner = ReverseTD(np.zeros((STREAMS, features.shape[1])), RobbinsMonro(0.5, delay=100.0, power=0.8))
    assert_close_to(learn(learner, mdp, policy, features, 4000), mdp.reverse_fixed_point(policy, features))


@pytest.mark.parametrize("lambda_", [0.5, 1.0])
def test_tabular_reverse_td_lambda_converges_to_the_reverse_gvf(lambda_):
    mdp, policy = random_mdp(0)
    learner = ReverseTD(np.zeros((STREAMS, 3)), RobbinsMonro(0.5, delay=100.0, power=0.8), lambda_)
    assert_close_to(learn(learner, mdp, policy, np.eye(3), 4000), mdp.reverse_gvf(policy))


def test_lambda_one_is_regression_on_the_reverse_return():
    mdp, policy = random_mdp(1)
    learner = ReverseTD(np.zeros((STREAMS, 3)), Constant(0.1), 1.0)
    weights, reverse_return = np.zeros((STREAMS, 3)), np.zeros(STREAMS)
    x = np.eye(3)
    for s, a, t in streams_of(mdp, policy, STREAMS, 50, 0):
        reward, discount = mdp.reward[s, a, t], mdp.discount[s, a, t]
        learner.update(x[s], x[t], reward, discount)
        reverse_return = reward + discount * reverse_return
        weights += 0.1 * (reverse_return - (x[t] * weights).sum(-1))[:, None] * x[t]
    assert learner.weights == pytest.approx(weights)


def test_off_policy_reverse_td_converges_to_the_on_policy_fixed_point():
    mdp, target = random_mdp(2)
    behaviour = np.full((3, 2), 0.5)
    tau, rho = density_ratio(mdp, target, behaviour), importance_ratio(mdp, target, behaviour)
    learner = ReverseTD(np.zeros((STREAMS, 2)), RobbinsMonro(0.5, delay=100.0, power=0.8))
    found = learn(learner, mdp, behaviour, FEATURES, 6000, lambda s, a: tau[s] * rho[s, a])
    expected = mdp.reverse_fixed_point(target, FEATURES)
    assert_close_to(found, expected)
    assert np.abs(expected - mdp.reverse_fixed_point(behaviour, FEATURES)).max() > 0.05


def gtd_point(mdp, behaviour, features, weight):
    """Where E_mu[weight (R + gamma x . w - x' . w) x'] is 0, by enumeration."""
    d = mdp.stationary_distribution(behaviour)
    flow = d[:, None, None] * (behaviour * weight)[:, :, None] * mdp.transition
    X = features
    A = X.T @ (np.diag(flow.sum((0, 1))) - (flow * mdp.discount).sum(1).T) @ X
    return np.linalg.solve(A, X.T @ (flow * mdp.reward).sum((0, 1)))


def test_reverse_gtd_converges_to_its_fixed_point_and_with_tau_to_the_on_policy_one():
    mdp, target = random_mdp(2)
    behaviour = np.full((3, 2), 0.5)
    tau, rho = density_ratio(mdp, target, behaviour), importance_ratio(mdp, target, behaviour)
    for weight in (rho, tau[:, None] * rho):
        learner = ReverseGTD(np.zeros((STREAMS, 2)), RobbinsMonro(0.5, 300.0, 0.7), RobbinsMonro(0.5, 300.0, 0.6))
        found = learn(learner, mdp, behaviour, FEATURES, 8000, lambda s, a, w=weight: w[s, a])
        assert_close_to(found, gtd_point(mdp, behaviour, FEATURES, weight), bias=0.02)
    assert gtd_point(mdp, behaviour, FEATURES, tau[:, None] * rho) == pytest.approx(mdp.reverse_fixed_point(target, FEATURES))
    assert np.abs(gtd_point(mdp, behaviour, FEATURES, rho) - mdp.reverse_fixed_point(target, FEATURES)).max() > 0.02


def test_the_learnt_density_ratio_matches_the_stationary_distributions():
    mdp, target = random_mdp(3)
    behaviour = np.full((3, 2), 0.5)
    rho, tau = importance_ratio(mdp, target, behaviour), density_ratio(mdp, target, behaviour)
    learner = DensityRatio(3, RobbinsMonro(0.3, 100.0, 0.7), (STREAMS,))
    x = np.eye(3)
    for s, a, t in streams_of(mdp, behaviour, STREAMS, 5000, 0):
        learner.update(x[s], x[t], rho[s, a])
    assert np.abs(tau - 1).max() > 0.1
    assert_close_to(learner.weights, tau, bias=0.02)
    assert learner(np.tile([-1.0, 0.0, 0.0], (STREAMS, 1))).min() == 0.0


def test_quantile_huber_gradient_equals_finite_differences_of_the_loss():
    rng = np.random.default_rng(0)
    prediction, target = rng.normal(size=4), rng.normal(size=6)
    for kappa in (0.5, 1.0):

        def loss(q, kappa=kappa):
            u = target[None] - q[:, None]
            huber = np.where(np.abs(u) <= kappa, u**2 / (2 * kappa), np.abs(u) - kappa / 2)
            return (np.abs(midpoints(4)[:, None] - (u < 0)) * huber).mean(-1).sum()

        found = quantile_huber_gradient(prediction, target, kappa)
        for i in range(4):
            step = np.zeros(4)
            step[i] = 1e-6
            slope = (loss(prediction + step) - loss(prediction - step)) / 2e-6
            assert found[i] == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("target_interval", [0, 50])
def test_quantile_reverse_td_recovers_the_quantiles_of_the_reverse_return(target_interval):
    mdp, policy = random_mdp(4)
    streams, x = 400, np.eye(3)
    learner = QuantileReverseTD(np.zeros((streams, 9, 3)), 0.5, kappa=0.05, target_interval=target_interval)
    reverse_return, samples, seen = np.zeros(streams), [], []
    for step, (s, a, t) in enumerate(streams_of(mdp, policy, streams, 3000, 0)):
        if step == 2000:
            learner._step_size = 0.05
        reward, discount = mdp.reward[s, a, t], mdp.discount[s, a, t]
        learner.update(x[s], x[t], reward, discount)
        reverse_return = reward + discount * reverse_return
        if step % 10 == 0 and step > 500:
            samples.append(reverse_return)
            seen.append(t)
    samples, seen = np.concatenate(samples), np.concatenate(seen)
    for state in range(3):
        expected = np.quantile(samples[seen == state], midpoints(9))
        found = learner.theta[:, :, state].mean(0)
        spread = expected[-1] - expected[0]
        assert np.abs(found - expected).max() < 0.08 * spread


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="power must lie"):
        RobbinsMonro(0.1, power=0.4)
    with pytest.raises(ValueError, match="lambda must lie"):
        ReverseTD(np.zeros(3), Constant(0.1), 1.2)
