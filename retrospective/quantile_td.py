"""Distributional Reverse TD with linear features: quantile regression (Dabney et al. 2018) of the reverse return."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from retrospective.finite_mdp import Array, Numbers


def midpoints(num_quantiles: int) -> Array:
    """Quantile midpoints tau_i = (2i - 1) / 2N, i = 1..N (Dabney et al. 2018, lemma 2)."""
    return (2 * np.arange(1, num_quantiles + 1) - 1) / (2 * num_quantiles)


@cache
def _slopes(num_quantiles: int, num_targets: int, dtype: np.dtype) -> tuple[Array, Array, Array]:
    """-tau_i / M, -(1 - tau_i) / M, and M ones: a product with them is the fastest sum over targets."""
    tau = midpoints(num_quantiles)
    return (-tau / num_targets).astype(dtype), ((tau - 1) / num_targets).astype(dtype), np.ones(num_targets, dtype)


def quantile_huber_gradient(prediction: Array, target: Array, kappa: float) -> Array:
    """Gradient [..., N] with respect to `prediction` [..., N] of the quantile Huber loss for `target` [..., M].

    loss_i = mean_j |tau_i - 1{u_ij < 0}| H(u_ij),  u_ij = target_j - prediction_i,
    H(u) = u^2 / (2 kappa) for |u| <= kappa, else |u| - kappa / 2. kappa = 0 is quantile regression.
    """
    u = target[..., None, :] - prediction[..., :, None]
    if kappa == 0:
        u = np.sign(u)
    elif kappa != 1:
        u /= kappa
    rising, falling, ones = _slopes(prediction.shape[-1], target.shape[-1], u.dtype)
    return rising * (u.clip(0, 1) @ ones) + falling * (u.clip(-1, 0) @ ones)


class QuantileReverseTD:
    """Quantiles q_i(s) = x(s) . theta_i of the reverse return, vectorised over replicas; theta is [..., N, F].

    q_i(S_t) regresses on R_t + gamma_t q_j(S_{t-1}) for all j, weighted by the importance weight `weight` (off-policy: rho, or
    tau rho where the stationary distributions differ). If `target_interval` > 0, q_j comes from target parameters copied from
    theta at that interval. The gradient of the loss, averaged over i and j, is clipped to norm `clip_norm`.
    """

    def __init__(
        self,
        theta: ArrayLike,
        step_size: float,
        kappa: float = 1.0,
        clip_norm: float = np.inf,
        target_interval: int = 0,
    ):
        self.theta = np.array(theta, dtype=np.float64)
        self._step_size = step_size
        self._kappa = kappa
        self._clip_norm = clip_norm
        self._target_interval = target_interval
        self._target = self.theta.copy() if target_interval else self.theta
        self._updates = 0

    def quantiles(self, x: Array) -> Array:
        """Quantiles [..., N] at the features x [..., F]."""
        return np.einsum("...nf,...f->...n", self.theta, x)

    def update(self, x_tm1: Array, x_t: Array, reward: Numbers, discount: Numbers, weight: Numbers = 1.0) -> None:
        """One step on the transition t - 1 -> t, with features [..., F]."""
        rewards, discounts, weights = (np.asarray(x, dtype=np.float64)[..., None] for x in (reward, discount, weight))
        target = rewards + discounts * np.einsum("...nf,...f->...n", self._target, x_tm1)
        prediction = self.quantiles(x_t)
        gradient = weights * quantile_huber_gradient(prediction, target, self._kappa) / prediction.shape[-1]
        if self._clip_norm < np.inf:
            # theta's gradient is the outer product of this one and x_t.
            squared = np.einsum("...n,...n->...", gradient, gradient) * np.einsum("...f,...f->...", x_t, x_t)
            gradient /= np.maximum(np.sqrt(squared) / self._clip_norm, 1.0)[..., None]
        self.theta -= (self._step_size * gradient)[..., None] * x_t[..., None, :]
        self._updates += 1
        if self._target_interval and self._updates % self._target_interval == 0:
            self._target = self.theta.copy()
