"""The figure of the changed game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.reproduce.changed_game.summary import CONTROLS, is_noticed

HALF = 0.5


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """For each game: share of streams in which each detector notices each change, and the area under its ROC curve."""
    games = list(dict.fromkeys(row["game"] for row in rows))
    figure = Figure(figsize=(16, 5 * len(games)), layout="constrained")
    grid = figure.subplots(len(games), 2, squeeze=False)
    for (left, right), game in zip(grid, games, strict=True):
        mine = [row for row in rows if row["game"] == game]
        texts = [f"{row['noticed']:.0%}{'*' if is_noticed(row) else ''}" for row in mine]
        _table(left, mine, "noticed", texts, "Blues")
        left.set_title(f"{game}: streams with an alarm (* more than in the control)")
        _table(right, mine, "auc", [f"{row['auc']:.2f}" for row in mine], "RdBu")
        right.set_title(f"{game}: AUC of the mean score against the control")
    figure.savefig(path, dpi=100)


def _table(axes: Axes, rows: list[dict[str, Any]], name: str, texts: list[str], colours: str) -> None:
    changes, detectors = (list(dict.fromkeys(row[key] for row in rows)) for key in ("change", "detector"))
    values = np.array([row[name] for row in rows]).reshape(len(changes), len(detectors))
    axes.imshow(values, cmap=colours, vmin=0, vmax=1, aspect="auto")
    dark = values > 0.6 if colours == "Blues" else np.abs(values - HALF) > 0.35
    for i, text in enumerate(texts):
        y, x = divmod(i, len(detectors))
        axes.text(x, y, text, ha="center", va="center", color="w" if dark[y, x] else "k")
    axes.set_xticks(range(len(detectors)), [detector.replace(" ", "\n") for detector in detectors], fontsize=8)
    axes.set_yticks(range(len(changes)), changes)
    axes.axhline(CONTROLS - HALF, color="k", linewidth=1)
