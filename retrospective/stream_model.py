"""Streams of readings as retrospective questions: reverse returns of columns, their learnt distribution, an anomaly score.

A reading has D columns. Question j asks how much of column `cumulants[j]` has been accumulated lately, given the state of the
present reading. One model per stream, vectorised over streams, in memory that does not grow with their length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrospective.anomaly import anomaly_surprise
from retrospective.finite_mdp import Array
from retrospective.quantile_td import QuantileReverseTD
from retrospective.reverse_return import ReverseReturn

Features = Callable[[Array], Array]
"""Maps readings [..., D] to features [..., F] of the state."""

EDGE = 2.5
"""The outermost hat functions lie this many standard deviations from the mean."""


@dataclass(frozen=True)
class StreamReading:
    """What the model says about the readings of all streams at one time; each field is [streams] or [streams, questions]."""

    score: Array
    """Largest surprise over the questions whose cumulant was observed; NaN where none was."""
    surprise: Array
    """-log(1 - anomaly probability) of each question; NaN where its cumulant was not observed."""
    reverse_return: Array
    missing: Array
    """Largest share of a return's weight that was not observed."""


class RunningMoments:
    """Mean and standard deviation of values [...] by Welford's method; NaN is left out."""

    def __init__(self, shape: tuple[int, ...]):
        self.count = np.zeros(shape)
        self.mean: Array = np.zeros(shape)
        self._squares = np.zeros(shape)

    def add(self, value: Array, where: NDArray[np.bool_] | bool = True) -> None:
        used = np.isfinite(value) & where
        change = np.where(used, value - self.mean, 0.0)
        self.count += used
        self.mean = self.mean + change / np.maximum(self.count, 1)
        self._squares += change * np.where(used, value - self.mean, 0.0)

    @property
    def std(self) -> Array:
        """1 where it is 0 or not known yet."""
        std = np.sqrt(self._squares / np.maximum(self.count, 1))
        return np.where(std > 0, std, 1.0)


def hat_features(z: Array, bins: int) -> Array:
    """Hat functions [..., D * bins + 1] of standardised columns z [..., D], and a constant; a NaN column has features of 0.

    The hats of a column have their peaks at `bins` equidistant places in [-EDGE, EDGE] and add up to 1.
    """
    place = (np.clip(z, -EDGE, EDGE) + EDGE) / (2 * EDGE) * (bins - 1)
    hats = np.maximum(1 - np.abs(place[..., None] - np.arange(bins)), 0.0)
    flat = np.nan_to_num(hats).reshape(*z.shape[:-1], -1)
    return np.concatenate([flat, np.ones((*z.shape[:-1], 1))], axis=-1)


class StreamModel:
    """Distributional Reverse TD on streams of readings [streams, D].

    With the running mean m and standard deviation of the returns s, the reward of question j is the centred cumulant c - m, so
    that what was not observed counts as the mean; quantiles are learnt in units of s. The score of a reading comes from the
    anomaly probability of its reverse return, with delta and sigma the standard deviation of the prediction's error.

    `features` maps readings to states; without it they are hat functions of the standardised columns `states`, and question j
    does not see its own column, from which it could read the newest reward. Unit features make the step size the largest
    move of a quantile, in units of s.
    """

    def __init__(
        self,
        num_columns: int,
        discount: float,
        cumulants: Sequence[int],
        states: Sequence[int],
        features: Features | None = None,
        streams: int = 1,
        bins: int = 8,
        quantiles: int = 20,
        step_size: float = 0.05,
        kappa: float = 0.1,
    ):
        self.num_columns = num_columns
        self._discount = discount
        self._cumulants, self._states = list(cumulants), list(states)
        self._features, self._bins = features, bins
        shape = (streams, len(self._cumulants))
        self._shape = shape
        self._columns = RunningMoments((streams, num_columns))
        self._spread = RunningMoments(shape)
        self._error = RunningMoments(shape)
        self._return = ReverseReturn(shape, discount)
        self._quantiles, self._step_size, self._kappa = quantiles, step_size, kappa
        self._learner: QuantileReverseTD | None = None  # The number of features is known with the first reading.
        self._x: Array | None = None
        self._observed = np.zeros(shape, dtype=bool)
        own = np.array([[state == cumulant for state in self._states] for cumulant in self._cumulants])
        hidden = np.repeat(own.reshape(len(self._cumulants), -1), bins, axis=-1)
        self._visible = np.concatenate([~hidden, np.ones((len(self._cumulants), 1), dtype=bool)], axis=-1)

    @property
    def num_questions(self) -> int:
        return self._shape[1]

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays of the model."""
        arrays = [self._return.value, self._return.missing, self._observed]
        for moments in (self._columns, self._spread, self._error):
            arrays += [moments.count, moments.mean, moments._squares]
        arrays += [] if self._learner is None or self._x is None else [self._learner.theta, self._x]
        return sum(array.nbytes for array in arrays)

    def restart(self) -> None:
        """Forget the stream's past, not what was learnt."""
        self._return = ReverseReturn(self._shape, self._discount)
        self._x, self._observed = None, np.zeros(self._shape, dtype=bool)

    def forget_errors(self) -> None:
        """Forget the errors of predictions that were made before the model had learnt."""
        self._error = RunningMoments(self._shape)

    def measure_columns(self, reading: Array) -> None:
        """Add readings [streams, D] to the moments of the columns."""
        self._columns.add(np.where(np.isfinite(reading), reading, np.nan))

    def measure_returns(self, reading: Array, skipped: NDArray[np.int64] | int = 0) -> None:
        """Advance the stream and add its returns to their moments."""
        self._advance(reading, skipped)
        self._spread.add(self._return.value, self._observed)

    def learn(self, reading: Array, skipped: NDArray[np.int64] | int = 0, measure: bool = True) -> None:
        """Advance the stream by readings [streams, D] after `skipped` missing ones, and learn from the transition."""
        before, was_observed = self._x, self._observed & (np.reshape(skipped, (-1, 1)) == 0)
        if measure:
            self.measure_columns(reading)
            self.measure_returns(reading, skipped)
        else:
            self._advance(reading, skipped)
        if before is None or self._learner is None or self._x is None:
            return
        scale = self._spread.std
        predicted = self._learner.quantiles(self._x).mean(-1)
        self._error.add(self._return.value / scale - predicted, self._observed)
        reward = np.where(self._observed, self._centred(reading), 0.0) / scale
        self._learner.update(before, self._x, reward, self._discount, 1.0 * (self._observed & was_observed))

    def read(self, reading: Array, skipped: NDArray[np.int64] | int = 0) -> StreamReading:
        """Score readings [streams, D] without advancing."""
        x, reward = self._state(reading), self._centred(reading)
        reward = np.where(np.isfinite(x).all(-1), reward, np.nan)
        value, missing = self._return.after(reward, np.reshape(skipped, (-1, 1)))
        return self._score(x, value, missing, ~np.isnan(reward))

    def advance(self, reading: Array, skipped: NDArray[np.int64] | int = 0) -> StreamReading:
        """Advance by readings [streams, D] and score them, without learning."""
        self._advance(reading, skipped)
        assert self._x is not None
        return self._score(self._x, self._return.value, self._return.missing, self._observed)

    def _advance(self, reading: Array, skipped: NDArray[np.int64] | int) -> None:
        x = self._state(reading)
        known = np.isfinite(x).all(-1)
        reward = np.where(known, self._centred(reading), np.nan)
        self._return.step(reward, np.reshape(skipped, (-1, 1)))
        self._x, self._observed = np.nan_to_num(x), ~np.isnan(reward)
        if self._learner is None:
            theta = np.zeros((*self._shape, self._quantiles, x.shape[-1]))
            # The gradient of the loss is averaged over the quantiles.
            self._learner = QuantileReverseTD(theta, self._step_size * self._quantiles, self._kappa)

    def _score(self, x: Array, value: Array, missing: Array, observed: NDArray[np.bool_]) -> StreamReading:
        scale = self._spread.std
        predicted = np.zeros((*self._shape, 1)) if self._learner is None else self._learner.quantiles(np.nan_to_num(x))
        unit = self._error.std
        found = anomaly_surprise(value / scale / unit, predicted / unit[..., None])
        score = np.where(observed.any(-1), np.where(observed, found, -np.inf).max(-1), np.nan)
        return StreamReading(score, np.where(observed, found, np.nan), value, missing.max(-1))

    def _centred(self, reading: Array) -> Array:
        """Centred cumulants [streams, questions]; NaN where they are not finite."""
        cumulant = reading[:, self._cumulants]
        return np.where(np.isfinite(cumulant), cumulant, np.nan) - self._columns.mean[:, self._cumulants]

    def _state(self, reading: Array) -> Array:
        """Unit features [streams, questions, F]; NaN where the state is unknown."""
        if self._features is not None:
            x = np.asarray(self._features(reading), dtype=np.float64)
            x = np.broadcast_to(x[:, None], (*self._shape, x.shape[-1]))
        else:
            finite = np.where(np.isfinite(reading), reading, np.nan)
            z = (finite - self._columns.mean) / self._columns.std
            x = hat_features(z[:, self._states], self._bins)[:, None] * self._visible
        norm = np.linalg.norm(x, axis=-1, keepdims=True)
        return x / np.where(norm > 0, norm, 1.0)
