"""The reverse return of streams in which readings may be missing, in constant memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retrospective.finite_mdp import Array, Numbers


class ReverseReturn:
    """G_t = R_t + gamma G_{t-1}, and the share of its weight that was not observed; both have the shape of the streams.

    The reading k steps ago has the weight (1 - gamma) gamma^k. What was not observed counts as `fill`: a missing reading, and
    everything before the first. Hence G_0 = fill / (1 - gamma) and missing_0 = 1 before the first reading, and

    missing_t = gamma missing_{t-1} + (1 - gamma) 1{R_t is missing}.
    """

    def __init__(self, shape: tuple[int, ...], discount: float, fill: Numbers = 0.0):
        if not 0 <= discount < 1:
            raise ValueError(f"discount must lie in [0, 1), not {discount}")
        self._discount = discount
        self._fill = fill
        self.value: Array = np.zeros(shape) + fill / (1 - discount)
        self.missing: Array = np.ones(shape)

    def after(self, reward: Array, skipped: NDArray[np.int64] | int = 0) -> tuple[Array, Array]:
        """G and the missing share after `skipped` missing readings and then `reward`; NaN is missing. Nothing is stored."""
        decay = self._discount ** np.asarray(skipped, dtype=np.float64)
        past = decay * self.value + (1 - decay) / (1 - self._discount) * self._fill
        unseen = 1 - decay * (1 - self.missing)
        absent = np.isnan(reward)
        value = np.where(absent, self._fill, reward) + self._discount * past
        return value, self._discount * unseen + (1 - self._discount) * absent

    def step(self, reward: Array, skipped: NDArray[np.int64] | int = 0) -> None:
        """Store what `after` returns."""
        self.value, self.missing = self.after(reward, skipped)


def n_step(reward: Array, discount: Array, n: int) -> tuple[Array, Array]:
    """Reward and discount of n steps taken as one, [T - n + 1, ...], from those of single steps [T, ...].

    G_t = R + Gamma G_{t-n} with R = R_t + gamma_t R_{t-1} + ... of n terms and Gamma = gamma_t ... gamma_{t-n+1}.
    """
    if not 1 <= n <= len(reward):
        raise ValueError(f"n must lie in [1, {len(reward)}], the number of steps, not {n}")
    count = len(reward) - n + 1
    total, weight = np.zeros((count, *reward.shape[1:])), np.ones((count, *reward.shape[1:]))
    for first in range(n - 1, -1, -1):
        total += weight * reward[first : first + count]
        weight *= discount[first : first + count]
    return total, weight
