import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrospective.finite_mdp import FiniteMDP, MDPError, density_ratio, importance_ratio, simulate
from retrospective.microdrone import clockwise_policy, microdrone


def random_mdp(seed, num_states=3, num_actions=2, uniform=0.0):
    """A random MDP, with rewards and discounts of transitions, and a random policy; `uniform` is mixed into both."""
    rng = np.random.default_rng(seed)
    shape = (num_states, num_actions, num_states)
    transition = (1 - uniform) * rng.dirichlet(np.ones(num_states), size=shape[:2]) + uniform / num_states
    mdp = FiniteMDP(transition, rng.normal(size=shape), rng.uniform(0, 0.95, size=shape))
    return mdp, (1 - uniform) * rng.dirichlet(np.ones(num_actions), size=num_states) + uniform / num_actions


def streams_of(mdp, policy, streams, steps, seed):
    return simulate(mdp, policy, np.random.default_rng(seed).spawn(streams), steps)


@pytest.mark.parametrize(("clockwise", "expected"), [(0.5, [4.5, 6.0, 4.5, 5.94]), (0.1, [3.5146, 2.6829, 1.3683, 4.356])])
def test_reverse_gvf_of_the_microdrone(clockwise, expected):
    values = microdrone().reverse_gvf(clockwise_policy(clockwise))
    assert values == pytest.approx(expected, abs=5e-5)


@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_closed_forms_agree_with_simulation(seed, num_states, num_actions):
    # No transition is so rare that the error of a mean is underestimated.
    mdp, policy = random_mdp(seed, num_states, num_actions, uniform=0.3)
    streams, steps = 2000, 160
    reverse_return = np.zeros(streams)
    history = []
    for s, a, t in streams_of(mdp, policy, streams, steps, seed):
        reward, discount = mdp.reward[s, a, t], mdp.discount[s, a, t]
        reverse_return = reward + discount * reverse_return
        history.append((s, reward, discount))
    # One sample per stream, at the end, so that the samples are independent.
    totals, counts = (np.bincount(t, weights=w, minlength=num_states) for w in (reverse_return, np.ones(streams)))
    squares = np.bincount(t, weights=reverse_return**2, minlength=num_states)
    for state in np.flatnonzero(counts > 100):
        mean = totals[state] / counts[state]
        error = np.sqrt((squares[state] / counts[state] - mean**2) / counts[state])
        assert abs(mean - mdp.reverse_gvf(policy)[state]) < 5 * error + 1e-9
    shares = counts / streams
    d = mdp.stationary_distribution(policy)
    assert (np.abs(shares - d) < 5 * np.sqrt(d * (1 - d) / streams) + 1e-9).all()
    forward = np.zeros(streams)
    for _, reward, discount in reversed(history):
        forward = reward + discount * forward
    first = history[0][0]
    for state in range(num_states):
        samples = forward[first == state]
        assert abs(samples.mean() - mdp.gvf(policy)[state]) < 5 * samples.std() / np.sqrt(len(samples)) + 1e-9


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_reverse_gvf_is_the_fixed_point_of_the_reverse_bellman_operator_and_of_tabular_reverse_td(seed):
    mdp, policy = random_mdp(seed)
    values = mdp.reverse_gvf(policy)
    assert mdp.reverse_bellman(policy, values) == pytest.approx(values)
    assert mdp.reverse_fixed_point(policy, np.eye(3)) == pytest.approx(values)
    iterate = np.zeros(3)
    for _ in range(2000):
        iterate = mdp.reverse_bellman(policy, iterate)
    assert iterate == pytest.approx(values, abs=1e-6)


def test_state_dependent_discounts_give_the_papers_formula():
    rng = np.random.default_rng(0)
    mdp, policy = random_mdp(1)
    gamma = rng.uniform(0, 0.9, size=3)
    mdp = FiniteMDP(mdp.transition, mdp.reward, np.broadcast_to(gamma[:, None, None], mdp.discount.shape))
    d, P = mdp.stationary_distribution(policy), mdp.state_transition(policy)
    flow = d[:, None, None] * policy[:, :, None] * mdp.transition
    paper = np.diag(1 / d) @ np.linalg.inv(np.eye(3) - P.T @ np.diag(gamma)) @ (flow * mdp.reward).sum((0, 1))
    assert mdp.reverse_gvf(policy) == pytest.approx(paper)


def test_importance_and_density_ratios():
    mdp, target = random_mdp(2)
    behaviour = np.full((3, 2), 0.5)
    assert importance_ratio(mdp, target, behaviour) == pytest.approx(2 * target)
    tau = density_ratio(mdp, target, behaviour)
    assert tau @ mdp.stationary_distribution(behaviour) == pytest.approx(1)
    assert density_ratio(microdrone(), clockwise_policy(0.1), clockwise_policy(0.5)) == pytest.approx(np.ones(4))


def changed(array, index, value):
    copy = np.array(array)
    copy[index] = value
    return copy


def test_invalid_mdps_and_policies_are_refused_with_the_entry():
    mdp, policy = random_mdp(0)
    P, r, gamma = mdp.transition, mdp.reward, mdp.discount
    for arguments, complaint in (
        ((changed(P, (0, 1, 2), 0.9), r, gamma), r"the sum of transition\[0, 1\] = .* is not 1"),
        ((changed(P, (0, 0, 0), -0.1), r, gamma), r"transition\[0, 0, 0\] = -0.1 is negative"),
        ((P, changed(r, (1, 0, 2), np.nan), gamma), r"reward\[1, 0, 2\] = nan is not finite"),
        ((P, r, changed(gamma, (2, 1, 0), 1.5)), r"discount\[2, 1, 0\] = 1.5 lies outside \[0, 1\]"),
        ((P, r[:2], gamma), "reward is"),
        ((P[:, :, :2], r, gamma), "transition must be"),
    ):
        with pytest.raises(MDPError, match=complaint):
            FiniteMDP(*arguments)
    with pytest.raises(MDPError, match=r"the sum of policy\[1\] = 1.4 is not 1"):
        mdp.gvf(changed(np.full((3, 2), 0.5), (1, 0), 0.9))
    with pytest.raises(MDPError, match="never takes action 0 in state 2"):
        importance_ratio(mdp, policy, changed(np.full((3, 2), 0.5), 2, [0.0, 1.0]))


def test_chains_without_a_reverse_gvf_are_refused_with_the_reason():
    ring = np.zeros((3, 1, 3))
    for s in range(3):
        ring[s, 0, (s + 1) % 3] = 1.0
    policy, zeros = np.ones((3, 1)), np.zeros((3, 1, 3))
    with pytest.raises(MDPError, match="periodic"):
        FiniteMDP(ring, zeros, zeros).stationary_distribution(policy)
    trap = changed(ring, (2, 0), [0.0, 0.0, 1.0])
    with pytest.raises(MDPError, match="state 0 is never reached from state 1"):
        FiniteMDP(trap, zeros, zeros).reverse_gvf(policy)
    lazy = 0.5 * ring + 0.5 * np.eye(3)[:, None]
    with pytest.raises(MDPError, match="the expected return has no limit"):
        FiniteMDP(lazy, zeros, zeros + 1).reverse_gvf(policy)
