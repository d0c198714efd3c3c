"""The figure of the changed game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from retrospective.finite_mdp import Array


def draw(rows: list[dict[str, Any]], curves: dict[str, dict[str, dict[str, Array]]], path: Path) -> None:
    """For each game: share of streams in which each detector notices each change, and the first detector's over time."""
    games = list(curves)
    figure = Figure(figsize=(15, 5.2 * len(games)), layout="constrained")
    grid = figure.subplots(len(games), 2, squeeze=False, width_ratios=[6, 5])
    for (left, right), game in zip(grid, games, strict=True):
        _table(left, game, [row for row in rows if row["game"] == game])
        detector = rows[0]["detector"]
        for i, (change, of_detector) in enumerate(curves[game].items()):
            share = of_detector[detector]
            style = {"color": "k", "linestyle": ("--", ":")[i]} if i < 2 else {"color": f"C{i - 2}"}
            right.plot(np.arange(1, len(share) + 1), share, label=change, **style)
        right.set(xlabel="steps since the change", ylabel="share of streams with an alarm so far", ylim=(-0.02, 1.02))
        right.set_title(f"{game}: {detector} detector over time")
        right.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        right.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


def _table(axes: Axes, game: str, rows: list[dict[str, Any]]) -> None:
    changes, detectors = ([*dict.fromkeys(row[name] for row in rows)] for name in ("change", "detector"))
    shares = np.array([row["noticed"] for row in rows]).reshape(len(changes), len(detectors))
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(rows):
        y, x = divmod(i, len(detectors))
        star = "*" if row["interval"][0] > 0 else ""
        axes.text(x, y, f"{row['noticed']:.0%}{star}", ha="center", va="center", color="w" if row["noticed"] > 0.6 else "k")
    axes.set_xticks(range(len(detectors)), [name.replace(", ", ",\n") for name in detectors], fontsize=9)
    axes.set_yticks(range(len(changes)), changes)
    axes.axhline(1.5, color="k", linewidth=1)
    axes.set_title(f"{game}: streams with an alarm (* more than in the control)")
