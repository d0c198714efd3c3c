"""Finite Markov decision processes with closed forms of GVFs and Reverse GVFs (Zhang et al. 2020), and simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Numbers = Array | float

BLOCK = 1000
"""Steps per draw of random numbers."""
TOLERANCE = 1e-8
"""Largest deviation from 1 of a sum of probabilities."""


class MDPError(ValueError):
    """An invalid MDP or policy, or a value that does not exist; the message names the entry or state at fault."""


@dataclass(frozen=True)
class FiniteMDP:
    """States 0..S-1, actions 0..A-1; rewards and discounts may depend on the whole transition (s, a, s').

    All arrays are [S, A, S]. The reverse return after a transition is G_t = R_t + gamma_t G_{t-1}, with R_t and gamma_t the
    reward and the discount of the transition. A discount of 0 forgets the past.
    """

    transition: Array
    reward: Array
    discount: Array

    def __post_init__(self) -> None:
        shape = np.shape(self.transition)
        if len(shape) != 3 or shape[0] != shape[2] or 0 in shape:
            raise MDPError(f"transition must be [states, actions, states], not {list(shape)}")
        for name in ("transition", "reward", "discount"):
            array = np.asarray(getattr(self, name), dtype=np.float64)
            if array.shape != shape:
                raise MDPError(f"{name} is {list(array.shape)}, transition is {list(shape)}")
            _refuse(~np.isfinite(array), array, name, "is not finite")
            object.__setattr__(self, name, array)
        _refuse(self.transition < 0, self.transition, "transition", "is negative")
        _refuse((self.discount < 0) | (self.discount > 1), self.discount, "discount", "lies outside [0, 1]")
        totals = self.transition.sum(-1)
        _refuse(np.abs(totals - 1) > TOLERANCE, totals, "the sum of transition", "is not 1")

    @property
    def num_states(self) -> int:
        return self.transition.shape[0]

    @property
    def num_actions(self) -> int:
        return self.transition.shape[1]

    def check_policy(self, policy: ArrayLike) -> Array:
        """Return `policy` [S, A] as an array; raise MDPError unless its rows are distributions."""
        array = np.asarray(policy, dtype=np.float64)
        expected = (self.num_states, self.num_actions)
        if array.shape != expected:
            raise MDPError(f"policy is {list(array.shape)}, the process has {list(expected)} states and actions")
        _refuse(~np.isfinite(array) | (array < 0), array, "policy", "is not a probability")
        _refuse(np.abs(array.sum(-1) - 1) > TOLERANCE, array.sum(-1), "the sum of policy", "is not 1")
        return array

    def state_transition(self, policy: ArrayLike) -> Array:
        """Transition matrix P [S, S] under a policy."""
        return np.einsum("sa,sat->st", self.check_policy(policy), self.transition)

    def stationary_distribution(self, policy: ArrayLike) -> Array:
        """d [S], the unique solution of d = P^T d; raises MDPError if the chain is not ergodic."""
        P = self.state_transition(policy)
        n = len(P)
        for s, t in np.argwhere(~_boolean_power((P > 0) | np.eye(n, dtype=bool), n)):
            raise MDPError(f"the chain is not ergodic: state {t} is never reached from state {s}")
        if not _boolean_power(P > 0, (n - 1) ** 2 + 1).all():  # Wielandt's bound.
            raise MDPError("the chain is not ergodic: it is periodic")
        equations = np.vstack([P.T - np.eye(n), np.ones(n)])
        right = np.append(np.zeros(n), 1.0)
        return np.linalg.lstsq(equations, right, rcond=None)[0]

    def gvf(self, policy: ArrayLike) -> Array:
        """v(s) = E[R_{t+1} + gamma_{t+1} v(S_{t+1}) | S_t = s], [S]: the expected discounted sum of future rewards."""
        flow = np.einsum("sa,sat->sat", self.check_policy(policy), self.transition)
        expected_reward = (flow * self.reward).sum((1, 2))
        return _solve(np.eye(self.num_states) - (flow * self.discount).sum(1), expected_reward, "I - P Gamma")

    def reverse_gvf(self, policy: ArrayLike) -> Array:
        """v(s) = lim_t E[G_t | S_t = s], [S]: the solution of D v = c + W^T v, v = (D - W^T)^-1 c.

        With d the stationary distribution, c(s') = sum_{s,a} d(s) pi(a|s) p(s'|s,a) r(s,a,s') and W(s,s') the same sum over a
        with the discount in place of the reward. For discounts that depend on s only this is the paper's
        D^-1 (I - P^T Gamma)^-1 P~^T D~ r.
        """
        d, c, W = self._backward(policy)
        return _solve(np.diag(d) - W.T, c, "I - P^T Gamma")

    def reverse_bellman(self, policy: ArrayLike, values: ArrayLike) -> Array:
        """Reverse Bellman operator T y = D^-1 (c + W^T y), applied to `values` y [S]."""
        d, c, W = self._backward(policy)
        return (c + W.T @ np.asarray(values)) / d

    def reverse_fixed_point(self, policy: ArrayLike, features: ArrayLike) -> Array:
        """Fixed point w = -A^-1 b [F] of Reverse TD with linear `features` X [S, F]: A = X^T (W^T - D) X, b = X^T c."""
        X = np.asarray(features, dtype=np.float64)
        if X.ndim != 2 or len(X) != self.num_states:
            raise MDPError(f"features must be [{self.num_states}, number of features], not {list(X.shape)}")
        d, c, W = self._backward(policy)
        return _solve(X.T @ (np.diag(d) - W.T) @ X, X.T @ c, "A = X^T (P^T Gamma - I) D X")

    def _backward(self, policy: ArrayLike) -> tuple[Array, Array, Array]:
        """d [S], c [S] and W [S, S] of `reverse_gvf`."""
        d = self.stationary_distribution(policy)
        flow = d[:, None, None] * self.check_policy(policy)[:, :, None] * self.transition
        return d, (flow * self.reward).sum((0, 1)), (flow * self.discount).sum(1)


def simulate(
    mdp: FiniteMDP, policy: ArrayLike, rngs: Sequence[np.random.Generator], steps: int, start: NDArray[np.int64] | None = None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Transitions (s, a, s') of one stream per generator, each [streams]; initial states are uniform unless `start` is given.

    A stream depends on its own generator only, whatever the number of streams.
    """
    actions, states = mdp.check_policy(policy).cumsum(-1), mdp.transition.cumsum(-1)
    actions[..., -1] = states[..., -1] = 1.0
    s = np.array([rng.integers(mdp.num_states) for rng in rngs]) if start is None else start
    for block in range(0, steps, BLOCK):
        length = min(BLOCK, steps - block)
        for u in np.stack([rng.random((length, 2)) for rng in rngs], axis=1):
            a = (u[:, :1] > actions[s]).sum(-1)
            t = (u[:, 1:] > states[s, a]).sum(-1)
            yield s, a, t
            s = t


def density_ratio(mdp: FiniteMDP, target: ArrayLike, behaviour: ArrayLike) -> Array:
    """Density ratio tau(s) = d_pi(s) / d_mu(s), [S]."""
    return mdp.stationary_distribution(target) / mdp.stationary_distribution(behaviour)


def importance_ratio(mdp: FiniteMDP, target: ArrayLike, behaviour: ArrayLike) -> Array:
    """Importance ratio rho(s, a) = pi(a|s) / mu(a|s), [S, A]; raises MDPError where mu is 0 and pi is not."""
    pi, mu = mdp.check_policy(target), mdp.check_policy(behaviour)
    for s, a in np.argwhere((pi > 0) & (mu == 0)):
        raise MDPError(
            f"the behaviour policy never takes action {a} in state {s}, the target does with probability {pi[s, a]:g}"
        )
    return np.divide(pi, mu, out=np.zeros_like(pi), where=mu > 0)


def _boolean_power(edges: NDArray[np.bool_], exponent: int) -> NDArray[np.bool_]:
    """Boolean matrix power: whether a path of exactly `exponent` edges joins two states."""
    result = np.eye(len(edges), dtype=bool)
    while exponent:
        if exponent & 1:
            result = result @ edges
        edges = edges @ edges
        exponent >>= 1
    return result


def _refuse(bad: NDArray[np.bool_], array: Array, name: str, why: str) -> None:
    for index in np.argwhere(bad):
        entry = ", ".join(map(str, index))
        raise MDPError(f"{name}[{entry}] = {array[tuple(index)]:g} {why}")


def _solve(matrix: Array, right: Array, name: str) -> Array:
    if np.linalg.cond(matrix) > 1 / np.finfo(np.float64).eps:
        raise MDPError(f"{name} is singular: the expected return has no limit; some discounts must be below 1")
    return np.linalg.solve(matrix, right).astype(np.float64)
