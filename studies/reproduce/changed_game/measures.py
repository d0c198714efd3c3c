"""Measures of a detector: rate of false alarms, whether a change is noticed, how soon, and how well it is told from none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrospective.anomaly import conformal_threshold, moving_average
from retrospective.finite_mdp import Array
from studies.reproduce.changed_game.detectors import Detector
from studies.reproduce.changed_game.play import Play
from studies.reproduce.streams.measures import roc_auc


@dataclass(frozen=True)
class Watched:
    """A detector on N streams after a change."""

    delays: list[int | None]
    """Steps from the change to the first alarm, 1 for the first changed step; None where there is none."""
    means: list[float]
    """Mean of the moving average of each stream's scores."""


class Watch:
    """A fitted detector with an alarm: a threshold on the moving average of its scores, from normal play.

    `calibrate` sets the threshold; what is held out follows it in the same streams, and changes follow that.
    """

    def __init__(self, detector: Detector, decay: float):
        self._detector, self._decay = detector, decay

    def calibrate(self, calibration: Play, held_out: Play, rate: float) -> float:
        """The false-alarm rate that was measured: the share of held-out steps with an alarm."""
        normal = moving_average(self._detector.score(calibration), self._decay)
        self.threshold = conformal_threshold(normal.ravel(), rate)
        after = moving_average(self._detector.score(held_out), self._decay, normal[-1])
        self._average = after[-1]
        return float((after > self.threshold).mean())

    def watch(self, play: Play) -> Watched:
        """What the alarm says to play that continues the held-out one."""
        averages = moving_average(self._detector.score(play), self._decay, self._average)
        return Watched(first_alarms(averages, self.threshold), [float(f"{x:.5g}") for x in averages.mean(0)])


def first_alarms(averages: Array, threshold: float) -> list[int | None]:
    """Number of the first step above the threshold, from 1, in each column of averages [T, N]; None where there is none."""
    alarm = averages > threshold
    return [int(column.argmax()) + 1 if column.any() else None for column in alarm.T]


def noticed(delays: list[int | None]) -> float:
    """Share of streams with an alarm."""
    return float(np.mean([delay is not None for delay in delays]))


def median_delay(delays: list[int | None]) -> float | None:
    """Median over the streams with an alarm; None without any."""
    found = [delay for delay in delays if delay is not None]
    return float(np.median(found)) if found else None


def separation(changed: list[float], unchanged: list[float]) -> float:
    """Area under the ROC curve: the probability that a changed stream has the higher mean score."""
    return roc_auc(np.array(changed + unchanged), np.arange(len(changed) + len(unchanged)) < len(changed))
