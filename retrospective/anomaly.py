"""Anomaly detection with reverse GVFs: compare the observed reverse return with its learnt distribution (Zhang et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from retrospective.finite_mdp import Array, Numbers


def anomaly_probability(reverse_return: Numbers, quantiles: Array, delta: float = 1.0, sigma: float = 1.0) -> Array:
    """Anomaly probability 1 - mean_i [Phi((G + delta - q_i) / sigma) - Phi((G - delta - q_i) / sigma)], shape [...].

    It is the probability of a sample further than delta from the observed reverse return G [...], under a mixture of normals
    with standard deviation sigma at the quantiles q [..., N]. Its minimum, 1 - erf(delta / (sigma sqrt 2)), is reached where
    every quantile equals G: 0.317 for delta = sigma = 1.
    """
    gap = np.asarray(reverse_return, dtype=np.float64)[..., None] - quantiles
    return 1 - (_normal_cdf((gap + delta) / sigma) - _normal_cdf((gap - delta) / sigma)).mean(-1)


def anomaly_surprise(reverse_return: Numbers, quantiles: Array, delta: float = 1.0, sigma: float = 1.0) -> Array:
    """-log(1 - anomaly probability), [...]: finite, and increasing with the distance, where the probability is rounded to 1."""
    # The normal is symmetric, and differences of its distribution function are exact in its lower tail only.
    gap = -np.abs(np.asarray(reverse_return, dtype=np.float64)[..., None] - quantiles)
    upper, lower = (_log_normal_cdf((gap + shift) / sigma) for shift in (delta, -delta))
    inside = upper + np.log1p(-np.exp(lower - upper))
    largest = inside.max(-1, keepdims=True)
    return -(largest[..., 0] + np.log(np.exp(inside - largest).mean(-1)))


def minimum_probability(delta: float = 1.0, sigma: float = 1.0) -> float:
    """The minimum of `anomaly_probability`."""
    return 1 - math.erf(delta / (sigma * math.sqrt(2)))


def _normal_cdf(x: Array) -> Array:
    return torch.special.ndtr(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def _log_normal_cdf(x: Array) -> Array:
    return torch.special.log_ndtr(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def conformal_threshold(normal: Array, rate: float) -> float:
    """The threshold that scores of normal data exceed with probability `rate` at most, from a sample [n] of such scores.

    It is the ceil((n + 1)(1 - rate))-th smallest score (conformal prediction), or the largest if n < 1 / rate - 1.
    """
    if not 0 < rate < 1:
        raise ValueError(f"the false-alarm rate must lie in (0, 1), not {rate}")
    rank = min(len(normal), math.ceil((len(normal) + 1) * (1 - rate)))
    return float(np.sort(normal)[rank - 1])


def moving_average(values: Array, decay: float, start: Array | None = None) -> Array:
    """Exponential moving averages [T, streams] of `values` [T, streams], continued from `start` [streams] if it is given.

    Without `start` the first is the first value that is known; an unknown one (NaN) leaves the average unchanged.
    """
    if not 0 <= decay < 1:
        raise ValueError(f"decay must lie in [0, 1), not {decay}")
    averages = np.empty_like(values)
    average = np.full(values.shape[1:], np.nan) if start is None else start
    for t, value in enumerate(values):
        averages[t] = average = _averaged(average, value, decay)
    return averages


def _averaged(average: Array, value: Array, decay: float) -> Array:
    moved = np.where(np.isnan(average), value, decay * average + (1 - decay) * value)
    return np.where(np.isnan(value), average, moved)


@dataclass(frozen=True)
class Reading:
    """Output of a monitor after one step; each field has the shape of the streams."""

    reverse_return: Array
    probability: Array
    """Anomaly probability; NaN where the reverse return is unknown."""
    known: NDArray[np.bool_]
    """Whether the reverse return is known: False from an invalid reward or discount until the next discount of 0."""
    alarm: NDArray[np.bool_]
    """Whether the alarm is raised; always False without a calibrated `Alarm`."""


class AnomalyMonitor:
    """Online anomaly detection on one or many streams, in constant memory.

    `quantiles` maps the states of all streams to the learnt quantiles [..., N] of their reverse returns. Each `step` updates
    the reverse return, G_t = R_t + gamma_t G_{t-1}, and compares. After a reward or discount that is not finite, or a discount
    outside [0, 1], the stream is unknown until the next discount of 0; with `strict` it raises ValueError instead.
    """

    def __init__(
        self,
        quantiles: Callable[..., Array],
        streams: tuple[int, ...] = (),
        delta: float = 1.0,
        sigma: float = 1.0,
        alarm: Alarm | None = None,
        strict: bool = False,
    ):
        if delta <= 0 or sigma <= 0:
            raise ValueError(f"delta and sigma must be positive, not {delta} and {sigma}")
        self._quantiles = quantiles
        self._delta, self._sigma = delta, sigma
        self._alarm = alarm
        self._strict = strict
        self._return = np.zeros(streams)
        self._known = np.ones(streams, dtype=bool)
        self._score = np.full(streams, np.nan)

    def step(self, state: object, reward: Numbers, discount: Numbers) -> Reading:
        """Observe a transition into `state` with its reward R_t and discount gamma_t."""
        reward, discount = (np.broadcast_to(np.asarray(x, dtype=np.float64), self._return.shape) for x in (reward, discount))
        valid = np.isfinite(reward) & np.isfinite(discount) & (discount >= 0) & (discount <= 1)
        if self._strict and not valid.all():
            where = tuple(int(i) for i in np.argwhere(~valid)[0])
            raise ValueError(f"stream {where}: reward {reward[where]} with discount {discount[where]} is invalid")
        self._known = valid & (self._known | (discount == 0))
        past = np.where(self._known & (discount > 0), self._return, 0.0)
        self._return = np.where(self._known, np.where(valid, reward, 0.0) + np.where(valid, discount, 0.0) * past, 0.0)
        found = anomaly_probability(self._return, self._quantiles(state), self._delta, self._sigma)
        probability = np.where(self._known, found, np.nan)
        alarm = np.zeros(self._return.shape, dtype=bool)
        if self._alarm is not None:
            self._score = self._alarm.update_score(self._score, probability)
            alarm = self._score > self._alarm.threshold
        return Reading(np.where(self._known, self._return, np.nan), probability, self._known.copy(), alarm)


@dataclass(frozen=True)
class Alarm:
    """A threshold on the exponential moving average of anomaly probabilities.

    score_t = decay score_{t-1} + (1 - decay) probability_t: a decay of 0 uses single steps, 0.9 about ten.
    """

    threshold: float
    decay: float
    target_rate: float
    """Requested false-alarm rate: share of steps of normal data on which the alarm is raised."""
    measured_rate: float
    """False-alarm rate on held-out normal data."""
    interval: tuple[float, float]
    """95% confidence interval of the measured rate."""

    def update_score(self, score: Array, probability: Array) -> Array:
        """The moving average after `probability`; an unknown one (NaN) leaves it unchanged."""
        return _averaged(score, probability, self.decay)

    @staticmethod
    def calibrate(normal: Array, rate: float, decay: float = 0.0, seed: int = 0) -> Alarm:
        """Calibrate on anomaly probabilities [T, streams] of normal data: half of the streams, the others are held out.

        The threshold is the (1 - rate) quantile with the finite-sample correction of conformal prediction. The interval is a
        bootstrap over whole streams, since successive steps are correlated.
        """
        if normal.ndim != 2 or normal.shape[1] < 4:
            raise ValueError(
                f"calibration needs probabilities [steps, streams] of at least 4 streams, not {list(normal.shape)}"
            )
        scores = moving_average(normal, decay)
        rng = np.random.default_rng(seed)
        order = rng.permutation(normal.shape[1])
        calibration, held_out = np.array_split(order, 2)
        chosen = scores[:, calibration][np.isfinite(scores[:, calibration])]
        threshold = conformal_threshold(chosen, rate)
        rates = np.nanmean(np.where(np.isnan(scores[:, held_out]), np.nan, scores[:, held_out] > threshold), axis=0)
        resampled = rng.choice(rates, size=(2000, len(rates))).mean(-1)
        low, high = np.quantile(resampled, [0.025, 0.975])
        return Alarm(threshold, decay, rate, float(rates.mean()), (float(low), float(high)))
