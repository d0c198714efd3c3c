"""Anomalies, by retrospective knowledge: does what happened agree with what must have happened before a state like this?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from retrospective.finite_mdp import Array, Numbers


def anomaly_probability(reverse_return: Numbers, quantiles: Array, delta: float = 1.0, sigma: float = 1.0) -> Array:
    """1 - mean_i [Phi((G + delta - q_i) / sigma) - Phi((G - delta - q_i) / sigma)], for quantiles [..., N].

    The quantiles stand for a mixture of normals of width sigma, and the probability is that of being further than delta from
    the observed return G. Even if every quantile equals G it is 1 - erf(delta / sigma sqrt 2): 0.317 where both are 1.
    """
    gap = np.asarray(reverse_return, dtype=np.float64)[..., None] - quantiles
    return 1 - (_normal_cdf((gap + delta) / sigma) - _normal_cdf((gap - delta) / sigma)).mean(-1)


def minimum_probability(delta: float = 1.0, sigma: float = 1.0) -> float:
    """The least that `anomaly_probability` can be."""
    return 1 - math.erf(delta / (sigma * math.sqrt(2)))


def _normal_cdf(x: Array) -> Array:
    return torch.special.ndtr(torch.from_numpy(np.ascontiguousarray(x))).numpy()


@dataclass(frozen=True)
class Reading:
    """What a monitor says after one step, for every stream."""

    reverse_return: Array
    probability: Array
    """NaN where the reverse return is not known."""
    known: NDArray[np.bool_]
    """False from a reading that was no number until the next discount of 0 makes the past irrelevant."""
    alarm: NDArray[np.bool_]
    """Always False without a calibrated threshold."""


class AnomalyMonitor:
    """Watches one or many streams in constant memory.

    `quantiles` maps the states of all streams to the learnt quantiles [..., N] of their reverse returns. Each `step` carries
    the return on, G_t = R_t + gamma_t G_{t-1}, and compares. A reward or discount that is no number does not stop the watch:
    the stream is flagged as unknown until its past is forgotten (a discount of 0), unless `strict` asks for an error.
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
        """After a transition into `state`, with its reward and the discount of what lies before it."""
        reward, discount = (np.broadcast_to(np.asarray(x, dtype=np.float64), self._return.shape) for x in (reward, discount))
        readable = np.isfinite(reward) & np.isfinite(discount) & (discount >= 0) & (discount <= 1)
        if self._strict and not readable.all():
            where = tuple(int(i) for i in np.argwhere(~readable)[0])
            raise ValueError(f"stream {where}: reward {reward[where]} with discount {discount[where]} is no reading")
        self._known = readable & (self._known | (discount == 0))
        past = np.where(self._known & (discount > 0), self._return, 0.0)
        self._return = np.where(self._known, np.where(readable, reward, 0.0) + np.where(readable, discount, 0.0) * past, 0.0)
        found = anomaly_probability(self._return, self._quantiles(state), self._delta, self._sigma)
        probability = np.where(self._known, found, np.nan)
        alarm = np.zeros(self._return.shape, dtype=bool)
        if self._alarm is not None:
            self._score = self._alarm.update_score(self._score, probability)
            alarm = self._score > self._alarm.threshold
        return Reading(np.where(self._known, self._return, np.nan), probability, self._known.copy(), alarm)


@dataclass(frozen=True)
class Alarm:
    """Raised where a running mean of anomaly probabilities exceeds a threshold.

    `decay` is the weight of the past in that mean: 0 looks at each step alone, 0.9 at some ten.
    """

    threshold: float
    decay: float
    target_rate: float
    """Share of steps of normal data on which it may be raised."""
    measured_rate: float
    """Share on which it was, in normal data that the threshold was not chosen on."""
    interval: tuple[float, float]
    """95% confidence interval of that share."""

    def update_score(self, score: Array, probability: Array) -> Array:
        """The running mean; an unknown probability leaves it as it was."""
        moved = np.where(np.isnan(score), probability, self.decay * score + (1 - self.decay) * probability)
        return np.where(np.isnan(probability), score, moved)

    @staticmethod
    def calibrate(normal: Array, rate: float, decay: float = 0.0, seed: int = 0) -> Alarm:
        """From the anomaly probabilities [T, streams] of normal data: half of the streams choose, the others judge.

        The threshold is the (1 - rate) quantile with the correction for finite samples of conformal prediction. The interval
        comes from resampling whole streams, since successive steps resemble each other.
        """
        if not 0 < rate < 1:
            raise ValueError(f"a false-alarm rate must lie in (0, 1), not {rate}")
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), not {decay}")
        if normal.ndim != 2 or normal.shape[1] < 4:
            raise ValueError(
                f"calibration needs probabilities [steps, streams] of at least 4 streams, not {list(normal.shape)}"
            )
        blank = Alarm(math.inf, decay, rate, math.nan, (math.nan, math.nan))
        scores = np.empty_like(normal)
        score = np.full(normal.shape[1], np.nan)
        for t, probability in enumerate(normal):
            score = blank.update_score(score, probability)
            scores[t] = score
        rng = np.random.default_rng(seed)
        order = rng.permutation(normal.shape[1])
        calibration, held_out = np.array_split(order, 2)
        chosen = scores[:, calibration][np.isfinite(scores[:, calibration])]
        level = min(1.0, math.ceil((len(chosen) + 1) * (1 - rate)) / len(chosen))
        threshold = float(np.quantile(chosen, level, method="higher"))
        rates = np.nanmean(np.where(np.isnan(scores[:, held_out]), np.nan, scores[:, held_out] > threshold), axis=0)
        resampled = rng.choice(rates, size=(2000, len(rates))).mean(-1)
        low, high = np.quantile(resampled, [0.025, 0.975])
        return Alarm(threshold, decay, rate, float(rates.mean()), (float(low), float(high)))
