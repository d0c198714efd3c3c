"""The figure of the streams study."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure

from retrospective.finite_mdp import Array
from studies.reproduce.streams.data import Rows, Stream
from studies.reproduce.streams.measures import stretches


def draw(
    stream: Stream, scores: dict[str, list[float]], thresholds: dict[str, float], rows: list[dict[str, Any]], path: Path
) -> None:
    """Readings and scores of one stream over time, and the AUC of every detector on every stream."""
    retrospective, *_ = scores
    shown = [retrospective, next(name for name in scores if "z-score" in name)]
    names = list(dict.fromkeys(row["stream"] for row in rows))
    figure = Figure(figsize=(12, 11), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[3, 2])
    upper, lower = halves
    panels = upper.subplots(1 + len(shown), 1, sharex=True)
    dates = np.array([datetime.fromtimestamp(time, UTC) for time in stream.readings[:, stream.time or 0]])
    _plot_parts(panels[0], dates, stream.readings[:, stream.columns[0]], [stream.train, stream.calibrate, *stream.test])
    panels[0].axvspan(dates[stream.train[0]], dates[stream.train[-1]], color="C2", alpha=0.15, label="training")
    panels[0].axvspan(dates[stream.calibrate[0]], dates[stream.calibrate[-1]], color="C1", alpha=0.2, label="calibration")
    panels[0].set(ylabel="flow, l/s", title=f"{stream.name}: readings, and scores of frozen detectors on the test data")
    tested = np.concatenate(stream.test)
    for axes, name in zip(panels[1:], shown, strict=True):
        values = np.full(len(stream.labels), np.nan)
        values[tested] = scores[name]
        _plot_parts(axes, dates, values, stream.test)
        axes.axhline(thresholds[name], color="0.3", linestyle="--", linewidth=1, label="threshold")
        axes.set(yscale="log", ylabel="score", title=name)
    for axes in panels:
        for i, (start, end) in enumerate(stretches(stream.labels)):
            last = dates[min(end, len(dates) - 1)]
            axes.axvspan(dates[start], last, color="C3", alpha=0.35, label="anomalous" if i == 0 else None)
        axes.legend(fontsize=8, loc="lower center", ncols=3)  # No test data lie there.
        axes.grid(alpha=0.3)
    panels[-1].xaxis.set_major_formatter(DateFormatter("%d %b"))
    for axes, name in zip(lower.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        _bars(axes, name, [row for row in rows if row["stream"] == name])
    figure.savefig(path, dpi=100)


def _plot_parts(axes: Axes, dates: Array, values: Array, parts: list[Rows]) -> None:
    """A line for each part, so that none joins parts that lie apart."""
    for rows in parts:
        axes.plot(dates[rows], values[rows], "C0-", linewidth=1)


def _bars(axes: Axes, name: str, rows: list[dict[str, Any]]) -> None:
    detectors = list(dict.fromkeys(row["detector"] for row in rows))
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    for i, mode in enumerate(modes):
        aucs = {row["detector"]: row["auc"] for row in rows if row["mode"] == mode}
        axes.barh(np.arange(len(detectors)) + 0.4 * i - 0.2, [aucs[d] for d in detectors], height=0.38, label=mode)
    axes.set_yticks(range(len(detectors)), detectors, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0.5, color="0.5", linestyle=":")
    axes.set(xlim=(0.4, 1.0), xlabel="area under the ROC curve")
    axes.set_title(name, loc="left")
    axes.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(modes))
    axes.grid(alpha=0.3, axis="x")
