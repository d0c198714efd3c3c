"""RetrospectiveDetector: retrospective anomaly detection with the conventions of scikit-learn and river.

It needs scikit-learn; river is not needed, but its evaluation and pipelines accept the detector.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import IntFlag
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from sklearn.base import BaseEstimator, OutlierMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("RetrospectiveDetector needs scikit-learn: pip install 'hindcast[streams]'") from error

from retrospective.anomaly import conformal_threshold
from retrospective.finite_mdp import Array
from retrospective.stream_model import Features, StreamModel

Column = int | str


class Flag(IntFlag):
    """What is wrong with a reading."""

    NOTHING = 0
    INVALID = 1
    """A column is not a finite number. Its question is not scored; with no question left the score is NaN."""
    GAP = 2
    """Readings are missing before this one; they count as the mean."""
    LATE = 4
    """It is not newer than the last one. It is not scored and not used."""
    UNCERTAIN = 8
    """More than `max_missing` of the return's weight was not observed, as at the start of a stream."""


@dataclass(frozen=True)
class Readings:
    """The detector's output for readings [T]."""

    score: Array
    """-log(1 - anomaly probability) of the most surprising question; NaN where there is none."""
    flag: NDArray[np.int64]
    """`Flag` as a number."""
    reverse_return: Array
    """Centred reverse returns [T, questions]."""


class RetrospectiveDetector(OutlierMixin, BaseEstimator):
    """Outlier detection in streams: is what has been accumulated lately plausible, given the present reading?

    Rows are readings in the order of time. Question j accumulates column j, G_t = c_t + discount G_{t-1}, and predicts the
    distribution of G_t from the other columns, or from `features`, by distributional Reverse TD. The score grows with the
    anomaly probability of G_t. scikit-learn's methods take whole streams, each from its start; river's `learn_one` advances one
    stream, and `score_one` looks at its next reading.

    discount: in [0, 1); 1 / (1 - discount) is the horizon in readings.
    cumulants, states: columns that are accumulated, and that make up the state; by default all but `time`.
    features: maps readings [..., D] to features [..., F] of the state, in place of hat functions of `states`.
    time, interval: column with the time of a reading, and the time between readings; needed to notice gaps and late readings.
    contamination: share of the training readings that are outliers, in (0, 0.5].
    false_alarm_rate: in (0, 1); if given, training data are taken as normal, and it replaces `contamination`.
    """

    _supervised = False
    """What river asks of a detector."""

    def __init__(
        self,
        discount: float = 0.9,
        *,
        cumulants: Sequence[Column] | None = None,
        states: Sequence[Column] | None = None,
        features: Features | None = None,
        time: Column | None = None,
        interval: float = 1.0,
        contamination: float = 0.1,
        false_alarm_rate: float | None = None,
        bins: int = 8,
        quantiles: int = 20,
        step_size: float = 0.05,
        epochs: int = 10,
        max_missing: float = 0.5,
    ):
        self.discount = discount
        self.cumulants = cumulants
        self.states = states
        self.features = features
        self.time = time
        self.interval = interval
        self.contamination = contamination
        self.false_alarm_rate = false_alarm_rate
        self.bins = bins
        self.quantiles = quantiles
        self.step_size = step_size
        self.epochs = epochs
        self.max_missing = max_missing

    def fit(self, X: ArrayLike, y: object = None) -> RetrospectiveDetector:
        """Learn from one stream of readings X [T, D], `epochs` times over, and set the threshold `offset_`."""
        rows = validate_data(self, X, ensure_all_finite=False, ensure_min_samples=2, dtype=np.float64)
        names = getattr(self, "feature_names_in_", None)
        self.columns_ = list(range(rows.shape[1])) if names is None else list(names)
        self._start()
        skipped, late, self._last_time = self.find_gaps(rows)
        used = np.flatnonzero(~late)
        if not np.isfinite(rows[used]).any():
            raise ValueError("no reading is finite")
        for t in used:
            self.model_.measure_columns(rows[t : t + 1])
        for t in used:
            self.model_.measure_returns(rows[t : t + 1], skipped[t])
        for _ in range(self.epochs):
            self.model_.forget_errors()
            self.model_.restart()
            for t in used:
                self.model_.learn(rows[t : t + 1], skipped[t], measure=False)
        scores = self._read(rows).score
        scores = scores[np.isfinite(scores)]
        if self.false_alarm_rate is None:
            self.offset_ = float(np.percentile(-scores, 100.0 * self.contamination))
        else:
            self.offset_ = -conformal_threshold(scores, self.false_alarm_rate)
        return self

    def calibrate(self, X: ArrayLike, rate: float) -> RetrospectiveDetector:
        """Set the threshold so that alarms are raised on a share `rate` of normal readings, from a held-out stream X [T, D]."""
        scores = self.read(X).score
        self.offset_ = -conformal_threshold(scores[np.isfinite(scores)], rate)
        return self

    def read(self, X: ArrayLike) -> Readings:
        """Scores, flags and returns of a stream X [T, D] from its start, without learning."""
        check_is_fitted(self)
        return self._read(validate_data(self, X, ensure_all_finite=False, reset=False, dtype=np.float64))

    def score_samples(self, X: ArrayLike) -> Array:
        """-score [T]: the lower, the more abnormal; NaN for readings that cannot be scored."""
        return -self.read(X).score

    def decision_function(self, X: ArrayLike) -> Array:
        """`score_samples` - `offset_`: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """-1 for outliers, 1 for inliers and for readings that cannot be scored."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Advance the stream by one reading and learn from it; a late one is ignored."""
        if not hasattr(self, "columns_"):
            self.columns_ = list(x)
            self.n_features_in_ = len(self.columns_)
            self._start()
        row = self._row(x)
        skipped, late, self._last_time = self.find_gaps(row, self._last_time)
        if not late[0]:
            self.model_.learn(row, skipped[0])

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """Anomaly probability of the stream's next reading, in [0, 1], as river's metrics expect.

        0 before anything was learnt; NaN if the reading is late or cannot be scored.
        """
        if not hasattr(self, "columns_"):
            return 0.0
        row = self._row(x)
        skipped, late, _ = self.find_gaps(row, self._last_time)
        return float("nan") if late[0] else -math.expm1(-self.model_.read(row, skipped[0]).score[0])

    def flag_one(self, x: Mapping[Any, Any]) -> Flag:
        """What is wrong with the stream's next reading."""
        if not hasattr(self, "columns_"):
            return Flag.UNCERTAIN
        row = self._row(x)
        skipped, late, _ = self.find_gaps(row, self._last_time)
        missing = self.model_.read(row, skipped[0]).missing
        return Flag(int(self._flags(row, skipped, late, missing)[0]))

    def _start(self) -> None:
        self._check_parameters()
        time = [] if self.time is None else [self._index(self.time)]
        others = [column for column in range(len(self.columns_)) if column not in time]
        if not others:
            raise ValueError("a reading must have a column besides its time")
        cumulants, states = (
            others if columns is None else [self._index(column) for column in columns]
            for columns in (self.cumulants, self.states)
        )
        self._last_time = -np.inf
        self.model_ = StreamModel(
            len(self.columns_),
            self.discount,
            cumulants,
            states,
            self.features,
            bins=self.bins,
            quantiles=self.quantiles,
            step_size=self.step_size,
        )

    def _check_parameters(self) -> None:
        bounds: list[tuple[str, bool, str]] = [
            ("discount", 0 <= self.discount < 1, "[0, 1)"),
            ("contamination", 0 < self.contamination <= 0.5, "(0, 0.5]"),
            ("false_alarm_rate", self.false_alarm_rate is None or 0 < self.false_alarm_rate < 1, "(0, 1)"),
            ("max_missing", 0 <= self.max_missing <= 1, "[0, 1]"),
            ("interval", 0 < self.interval < np.inf, "(0, inf)"),
            ("step_size", 0 < self.step_size < np.inf, "(0, inf)"),
            ("bins", self.bins >= 2, "[2, inf)"),
            ("quantiles", self.quantiles >= 1, "[1, inf)"),
            ("epochs", self.epochs >= 1, "[1, inf)"),
        ]
        for name, valid, interval in bounds:
            if not valid:
                raise ValueError(f"{name} must lie in {interval}, not {getattr(self, name)}")

    def _index(self, column: Column) -> int:
        if column in self.columns_:
            return self.columns_.index(column)
        if isinstance(column, int) and 0 <= column < len(self.columns_):
            return column
        raise ValueError(f"there is no column {column!r}; there is {', '.join(map(repr, self.columns_))}")

    def _row(self, x: Mapping[Any, Any]) -> Array:
        """The reading as an array [1, D]; columns that it lacks are NaN, others are ignored."""
        names = list(x) if self.columns_ == list(range(len(x))) else self.columns_
        return np.array([[_number(name, x.get(name)) for name in names]])

    def _read(self, rows: Array) -> Readings:
        model = copy.copy(self.model_)
        model.restart()
        skipped, late, _ = self.find_gaps(rows)
        score, missing = np.full(len(rows), np.nan), np.ones(len(rows))
        returns = np.full((len(rows), model.num_questions), np.nan)
        for t in np.flatnonzero(~late):
            reading = model.advance(rows[t : t + 1], skipped[t])
            score[t], missing[t], returns[t] = reading.score[0], reading.missing[0], reading.reverse_return[0]
        return Readings(score, self._flags(rows, skipped, late, missing), returns)

    def _flags(self, rows: Array, skipped: NDArray[np.int64], late: NDArray[np.bool_], missing: Array) -> NDArray[np.int64]:
        flag = Flag.INVALID * ~np.isfinite(rows).all(-1) + Flag.GAP * (skipped > 0)
        flag = flag + Flag.UNCERTAIN * (missing > self.max_missing)
        return np.where(late, int(Flag.LATE), flag).astype(np.int64)

    def find_gaps(self, rows: Array, last: float = -np.inf) -> tuple[NDArray[np.int64], NDArray[np.bool_], float]:
        """Number of readings missing before each, whether it is late, and the newest time.

        `last` is the time of the reading before. A time that is not finite is taken as the expected one.
        """
        skipped, late = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=bool)
        if self.time is not None:
            for t, time in enumerate(rows[:, self._index(self.time)]):
                late[t] = time <= last
                if np.isfinite(time) and not late[t]:
                    skipped[t] = max(0, round((time - last) / self.interval) - 1) if np.isfinite(last) else 0
                    last = time
                elif not np.isfinite(time):
                    last += self.interval
        return skipped, late, float(last)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _number(name: object, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, datetime):
        return value.timestamp()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"column {name!r} is not a number: {value!r}") from None


with suppress(ImportError):
    from river.base import AnomalyDetector

    AnomalyDetector.register(RetrospectiveDetector)  # So that river's evaluation takes it for a detector.
