"""Real streams that come with river: WaterFlow and Shuttle, split into training, calibration and test by fixed rules.

Training and calibration rows are normal. No other choice depends on the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from retrospective.finite_mdp import Array

Rows = NDArray[np.int64]

HOUR = 3600.0
TRAINED_FROM, CALIBRATED_FROM, TESTED_FROM = (f"2022-04-{day:02d}" for day in (4, 18, 25))
"""WaterFlow: two weeks of training, a week of calibration; tested on the two weeks before and the three weeks after."""
LOW = 98.0
"""WaterFlow's documentation speaks of three stretches of low values: no other reading is below 98.7 l/s."""
PEAK = 109.0
"""It also speaks of a small peak after the first two: no other reading is above 108 l/s."""
SHUTTLE_SHARES = 0.2, 0.4
"""Shuttle: normal rows of the first fifth are for training, those of the second fifth for calibration, the rest for test."""


@dataclass(frozen=True)
class Stream:
    """Readings [T, D] in the order of time, with labels that no detector sees.

    `columns` are the measured columns, `context` those that are only part of the state. A test segment is a stream of its own.
    """

    name: str
    readings: Array
    labels: NDArray[np.bool_]
    columns: list[int]
    context: list[int]
    train: Rows
    calibrate: Rows
    test: list[Rows]
    aftermath: int
    """Readings after an anomalous stretch whose recent past is anomalous too."""
    time: int | None = None
    interval: float = 1.0
    features: Callable[[Array], Array] | None = None
    season: int | None = None
    """Column by whose values the seasonal z-score is split."""


def hour_and_weekday(readings: Array) -> Array:
    """One-hot features [..., 31] of readings [..., 4] of WaterFlow."""
    return np.concatenate([np.eye(24)[readings[..., 2].astype(int)], np.eye(7)[readings[..., 3].astype(int)]], axis=-1)


def water_flow() -> Stream:
    """Hourly flow; columns: time in seconds, flow in l/s, local hour, weekday."""
    from river import datasets

    rows, days = [], []
    for x, flow in datasets.WaterFlow():
        time: datetime = x["Time"]
        rows.append((time.timestamp(), flow, time.hour, time.weekday()))
        days.append(time.date().isoformat())
    readings, dates = np.array(rows), np.array(days)
    train = (dates >= TRAINED_FROM) & (dates < CALIBRATED_FROM)
    calibrate = (dates >= CALIBRATED_FROM) & (dates < TESTED_FROM)
    before, after = dates < TRAINED_FROM, dates >= TESTED_FROM
    return Stream(
        "WaterFlow",
        readings,
        (readings[:, 1] < LOW) | (readings[:, 1] > PEAK),
        columns=[1],
        context=[2, 3],
        train=np.flatnonzero(train),
        calibrate=np.flatnonzero(calibrate),
        test=[np.flatnonzero(before), np.flatnonzero(after)],
        aftermath=48,
        time=0,
        interval=HOUR,
        features=hour_and_weekday,
        season=2,
    )


def shuttle() -> Stream:
    """Nine sensors of the space shuttle; the order of the rows was randomised by the authors of the data set."""
    from river import datasets

    pairs = [(list(x.values()), label) for x, label in datasets.Shuttle()]
    readings, labels = np.array([x for x, _ in pairs], dtype=np.float64), np.array([bool(label) for _, label in pairs])
    first, second = (int(share * len(labels)) for share in SHUTTLE_SHARES)
    normal = np.flatnonzero(~labels)
    return Stream(
        "Shuttle",
        readings,
        labels,
        columns=list(range(readings.shape[1])),
        context=[],
        train=normal[normal < first],
        calibrate=normal[(normal >= first) & (normal < second)],
        test=[np.arange(second, len(labels))],
        aftermath=0,
    )


STREAMS: dict[str, Callable[[], Stream]] = {"WaterFlow": water_flow, "Shuttle": shuttle}
