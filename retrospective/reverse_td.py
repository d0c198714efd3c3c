"""Reverse TD and relatives (Zhang et al. 2020): online learning of Reverse GVFs, in constant memory.

All learners are linear, v(s) = x(s) . w; one-hot features make them tabular. They are vectorised over independent replicas:
weights are [..., F]; features are [..., F]; all other arguments of `update` are [...] or broadcast to it. A transition leaves
the state at time t - 1 (`_tm1`) and enters the state at time t (`_t`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from retrospective.finite_mdp import Array, Numbers


class StepSize(Protocol):
    def __call__(self, update: int) -> Numbers:
        """Step size of update number `update`, counted from 0."""
        ...


@dataclass(frozen=True)
class Constant:
    alpha: Numbers

    def __call__(self, update: int) -> Numbers:
        return self.alpha


@dataclass(frozen=True)
class RobbinsMonro:
    """alpha_n = alpha / (1 + n / delay)^power; for 1/2 < power <= 1 it satisfies the Robbins-Monro conditions."""

    alpha: Numbers
    delay: float = 1000.0
    power: float = 1.0

    def __post_init__(self) -> None:
        if not 0.5 < self.power <= 1:
            raise ValueError(f"the power must lie in (1/2, 1], not {self.power}")

    def __call__(self, update: int) -> Numbers:
        return self.alpha / (1 + update / self.delay) ** self.power


def _dot(x: Array, w: Array) -> Array:
    return np.einsum("...f,...f->...", x, w)


class ReverseTD:
    """Reverse TD(lambda), on- or off-policy.

    w += alpha weight (R_t + gamma_t ((1 - lambda) x_{t-1} . w + lambda G_{t-1}) - x_t . w) x_t,  G_t = R_t + gamma_t G_{t-1}.

    lambda = 0 is Reverse TD; lambda = 1 is regression on the reverse return. Off-policy, with lambda = 0, the importance weight
    is tau(S_{t-1}) rho(S_{t-1}, A_{t-1}), and the fixed point is the on-policy one.
    """

    def __init__(self, weights: ArrayLike, step_size: StepSize, lambda_: ArrayLike = 0.0):
        self.weights = np.array(weights, dtype=np.float64)
        self._step_size = step_size
        self._lambda = np.asarray(lambda_, dtype=np.float64)
        if ((self._lambda < 0) | (self._lambda > 1)).any():
            raise ValueError(f"lambda must lie in [0, 1], not {lambda_!r}")
        self._return: Numbers = 0.0
        self._updates = 0

    def update(self, x_tm1: Array, x_t: Array, reward: Numbers, discount: Numbers, weight: Numbers = 1.0) -> None:
        bootstrap = (1 - self._lambda) * _dot(x_tm1, self.weights) + self._lambda * self._return
        error = reward + discount * bootstrap - _dot(x_t, self.weights)
        self._return = reward + discount * self._return
        step = np.asarray(self._step_size(self._updates) * weight * error)
        self.weights += step[..., None] * x_t
        self._updates += 1


class ReverseGTD:
    """Off-policy Reverse TD by a gradient TD method: stable for any features, without the density ratio tau.

    delta_t = weight (R_t + gamma_t x_{t-1} . w - x_t . w),
    h += beta (delta_t - x_t . h) x_t,  w += alpha weight (x_t - gamma_t x_{t-1}) (x_t . h).

    Its fixed point solves E_mu[delta_t x_t] = 0. With weight rho this differs from the on-policy fixed point, since S_{t-1} is
    distributed as under the behaviour policy; with weight tau rho it is the on-policy one.
    """

    def __init__(self, weights: ArrayLike, step_size: StepSize, auxiliary_step_size: StepSize):
        self.weights = np.array(weights, dtype=np.float64)
        self._auxiliary = np.zeros_like(self.weights)
        self._step_size = step_size
        self._auxiliary_step_size = auxiliary_step_size
        self._updates = 0

    def update(self, x_tm1: Array, x_t: Array, reward: Numbers, discount: Numbers, weight: Numbers = 1.0) -> None:
        delta = weight * (reward + discount * _dot(x_tm1, self.weights) - _dot(x_t, self.weights))
        correction = _dot(x_t, self._auxiliary)
        descent = np.asarray(weight * correction)[..., None] * (x_t - np.asarray(discount)[..., None] * x_tm1)
        self._auxiliary += np.asarray(self._auxiliary_step_size(self._updates) * (delta - correction))[..., None] * x_t
        self.weights += np.asarray(self._step_size(self._updates))[..., None] * descent
        self._updates += 1


class DensityRatio:
    """Density ratio tau(s) = d_pi(s) / d_mu(s) = x(s) . w, learnt from the behaviour policy by COP-TD (Hallak and Mannor 2017).

    tau(S_t) = E_mu[rho_{t-1} tau(S_{t-1}) | S_t] gives w += alpha (rho_{t-1} x_{t-1} . w - x_t . w) x_t, up to scale. The scale
    follows from E_mu[tau] = 1, with the running mean of the features.
    """

    def __init__(self, num_features: int, step_size: StepSize, replicas: tuple[int, ...] = ()):
        self.weights = np.ones((*replicas, num_features))
        self._mean_feature = np.zeros((*replicas, num_features))
        self._step_size = step_size
        self._updates = 0

    def update(self, x_tm1: Array, x_t: Array, rho: Numbers) -> None:
        error = rho * _dot(x_tm1, self.weights) - _dot(x_t, self.weights)
        self.weights += np.asarray(self._step_size(self._updates) * error)[..., None] * x_t
        self._updates += 1
        self._mean_feature += (x_t - self._mean_feature) / self._updates
        scale = _dot(self._mean_feature, self.weights)
        self.weights /= np.maximum(scale, 1e-6)[..., None]

    def __call__(self, x: Array) -> Array:
        """tau [...] at the features x [..., F], clipped at 0."""
        return np.maximum(_dot(x, self.weights), 0.0)
