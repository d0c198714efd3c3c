"""Measures of anomaly scores: area under the ROC curve, stretches found, delay, false alarms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrospective.finite_mdp import Array
from studies.reproduce.streams.data import Stream

WEEK = 168
"""Readings in a week of hourly ones."""


@dataclass(frozen=True)
class Measures:
    """A detector on the test data of a stream."""

    auc: float
    auc_without_aftermath: float | None
    """The same without normal readings whose recent past is anomalous; None where all are kept."""
    stretches: int
    found: int
    """Anomalous stretches with an alarm."""
    delay: float | None
    """Mean number of readings from the start of a stretch to its first alarm, of those found."""
    false_alarms_a_week: float
    """Alarms on normal readings, for each 168 normal readings; without the aftermath."""
    aftermath_alarms: float | None
    """Share of readings in the aftermath with an alarm."""


def roc_auc(scores: Array, labels: NDArray[np.bool_]) -> float:
    """Probability that an anomaly [n, label True] has a higher score than a normal reading; ties count a half."""
    if labels.all() or not labels.any():
        raise ValueError("the area under the ROC curve needs normal and anomalous readings")
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    anomalies = int(labels.sum())
    above = mean_rank[ranks][labels].sum() - anomalies * (anomalies + 1) / 2
    return float(above / anomalies / (len(labels) - anomalies))


def stretches(labels: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last + 1 index of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], labels, [False]]).astype(int)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def aftermath(labels: NDArray[np.bool_], length: int) -> NDArray[np.bool_]:
    """Normal readings at most `length` after an anomalous stretch."""
    found = np.zeros(len(labels), dtype=bool)
    for _, end in stretches(labels):
        found[end : end + length] = True
    return found & ~labels


def measure(stream: Stream, segments: list[Array], threshold: float) -> Measures:
    """Measures of the scores of each test segment; a reading without a score (NaN) raises no alarm."""
    scores = [np.where(np.isnan(score), -np.inf, score) for score in segments]
    labels = [stream.labels[rows] for rows in stream.test]
    after = np.concatenate([aftermath(label, stream.aftermath) for label in labels])
    delays: list[float] = []
    count = 0
    for score, label in zip(scores, labels, strict=True):
        for start, end in stretches(label):
            alarms = np.flatnonzero(score[start:end] > threshold)
            count += 1
            delays += [float(alarms[0])] if len(alarms) else []
    every, label = np.concatenate(scores), np.concatenate(labels)
    alarm = every > threshold
    return Measures(
        roc_auc(every, label),
        roc_auc(every[~after], label[~after]) if after.any() else None,
        count,
        len(delays),
        float(np.mean(delays)) if delays else None,
        float(alarm[~after & ~label].mean() * WEEK),
        float(alarm[after].mean()) if after.any() else None,
    )
