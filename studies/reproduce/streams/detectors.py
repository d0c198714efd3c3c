"""The detectors that are compared: retrospective ones, forward TD error, z-scores and river's.

A detector is fitted on normal readings and then scores streams: frozen, or learning from each reading after scoring it. The
higher the score, the more anomalous. Settings are the libraries' defaults, or fixed here for all streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from retrospective.finite_mdp import Array
from retrospective.stream_model import RunningMoments, hat_features
from studies.reproduce.streams.data import Stream

LEARNT = 20_000
"""Readings that detectors which learn by small steps see, repeated from the training data."""
STEP_SIZE = 0.05
BINS = 8


class Detector(Protocol):
    def fit(self, readings: Array) -> None: ...

    def score(self, readings: Array, learn: bool) -> Array:
        """Scores [T] of a stream of readings [T, D]; NaN where there is none. With `learn` each is then learnt from."""
        ...


class Retrospective:
    """RetrospectiveDetector with a horizon of `horizon` readings: discount 1 - 1 / horizon."""

    def __init__(self, stream: Stream, horizon: int):
        from retrospective.detector import RetrospectiveDetector

        self._detector = RetrospectiveDetector(
            1 - 1 / horizon,
            cumulants=stream.columns,
            features=stream.features,
            time=stream.time,
            interval=stream.interval,
            step_size=STEP_SIZE,
            bins=BINS,
            epochs=math.ceil(LEARNT / len(stream.train)),
        )

    def fit(self, readings: Array) -> None:
        self._detector.fit(readings)

    def score(self, readings: Array, learn: bool) -> Array:
        if not learn:
            return self._detector.read(readings).score
        model, scores = self._detector.model_, np.full(len(readings), np.nan)
        model.restart()
        skipped, late, _ = self._detector.find_gaps(readings)
        for t in np.flatnonzero(~late):
            scores[t] = model.read(readings[t : t + 1], skipped[t]).score[0]
            model.learn(readings[t : t + 1], skipped[t])
        return scores


class ForwardTD:
    """|TD error| of a linear GVF for each measured column, in standard deviations; the largest counts.

    delta_t = c_t + gamma x_t . w - x_{t-1} . w, with centred cumulants and unit features; w += alpha delta_t x_{t-1}.
    """

    def __init__(self, stream: Stream, horizon: int):
        self._columns, self._features = stream.columns, stream.features
        self._time, self._interval = stream.time, stream.interval
        self._discount = 1 - 1 / horizon

    def fit(self, readings: Array) -> None:
        self._mean, std = readings.mean(0), readings.std(0)
        self._std = np.where(std > 0, std, 1.0)
        num_features = self._prepare(readings[:1])[0].shape[-1]
        self._weights = np.zeros((len(self._columns), num_features))
        for _ in range(math.ceil(LEARNT / len(readings))):
            self._errors(readings, learn=True)
        self._scale = np.nanstd(self._errors(readings, learn=False), axis=0)

    def score(self, readings: Array, learn: bool) -> Array:
        return (np.abs(self._errors(readings, learn)) / self._scale).max(-1)

    def _errors(self, readings: Array, learn: bool) -> Array:
        """TD errors [T, columns] on entering each reading; NaN where the one before is missing."""
        x, cumulants, follows = self._prepare(readings)
        errors = np.full_like(cumulants, np.nan)
        for t in np.flatnonzero(follows):
            errors[t] = cumulants[t] + self._weights @ (self._discount * x[t] - x[t - 1])
            if learn:
                self._weights += STEP_SIZE * errors[t][:, None] * x[t - 1]
        return errors

    def _prepare(self, readings: Array) -> tuple[Array, Array, Array]:
        """Features [T, F], cumulants [T, columns], and whether a reading follows the one before without a gap."""
        z = (readings - self._mean) / self._std
        cumulants = z[:, self._columns]
        x = hat_features(cumulants, BINS) if self._features is None else self._features(readings)
        follows = np.ones(len(readings), dtype=bool)
        follows[0] = False
        if self._time is not None:
            follows[1:] = np.diff(readings[:, self._time]) < 1.5 * self._interval
        return x / np.linalg.norm(x, axis=-1, keepdims=True), cumulants, follows


class ZScore:
    """Largest |z| over the measured columns; with a season, mean and standard deviation belong to its value."""

    def __init__(self, stream: Stream):
        self._columns, self._season = stream.columns, stream.season
        self._moments: dict[float, RunningMoments] = {}

    def fit(self, readings: Array) -> None:
        for row in readings:
            self._learn(row)

    def score(self, readings: Array, learn: bool) -> Array:
        scores = np.empty(len(readings))
        for t, row in enumerate(readings):
            moments = self._moments[self._value(row)]
            scores[t] = np.abs((row[self._columns] - moments.mean) / moments.std).max()
            if learn:
                self._learn(row)
        return scores

    def _learn(self, row: Array) -> None:
        self._moments.setdefault(self._value(row), RunningMoments((len(self._columns),))).add(row[self._columns])

    def _value(self, row: Array) -> float:
        return 0.0 if self._season is None else float(row[self._season])


class River:
    """A detector of river on columns scaled to [0, 1] by their range so far."""

    def __init__(self, detector: Any, columns: list[int]):
        from river import compose, preprocessing

        self._model = compose.Pipeline(preprocessing.MinMaxScaler(), detector)
        self._columns = columns

    def fit(self, readings: Array) -> None:
        for row in readings:
            self._model.learn_one(self._dict(row))

    def score(self, readings: Array, learn: bool) -> Array:
        scores = np.empty(len(readings))
        for t, row in enumerate(readings):
            reading = self._dict(row)
            scores[t] = float(self._model.score_one(reading))
            if learn:
                self._model.learn_one(reading)
        return scores

    def _dict(self, row: Array) -> dict[str, float]:
        return {str(column): float(row[column]) for column in self._columns}


@dataclass(frozen=True)
class Entry:
    """A detector of the comparison; a seeded one is made anew with the seed of each run."""

    make: Callable[[Stream, int], Detector]
    seeded: bool = False


def _retrospective(horizon: int, stream: Stream, seed: int) -> Detector:
    return Retrospective(stream, horizon)


def _forward_td(horizon: int, stream: Stream, seed: int) -> Detector:
    return ForwardTD(stream, horizon)


def _z_score(stream: Stream, seed: int) -> Detector:
    return ZScore(stream)


def _river(name: str, with_context: bool, stream: Stream, seed: int) -> Detector:
    from river import anomaly

    return River(getattr(anomaly, name)(seed=seed), stream.columns + (stream.context if with_context else []))


def entries(stream: Stream, horizons: list[int]) -> dict[str, Entry]:
    """The detectors that are compared on a stream, by name; the first has the longest horizon."""
    found = {f"retrospective, horizon {h}": Entry(partial(_retrospective, h)) for h in sorted(horizons, reverse=True)}
    found[f"forward TD error, horizon {max(horizons)}"] = Entry(partial(_forward_td, max(horizons)))
    found["z-score" if stream.season is None else "seasonal z-score"] = Entry(_z_score)
    for name in ("HalfSpaceTrees", "LODA"):
        found[name] = Entry(partial(_river, name, True), seeded=True)
        if stream.context:
            found[f"{name}, flow only"] = Entry(partial(_river, name, False), seeded=True)
    return found
