"""Maps of questions and answers over the agent's positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from envs.grid_games import GRIDS, Grid

MapRow = tuple[str, str, str]
"""Before or after training, key of the map, and its label."""
QUESTIONS: tuple[MapRow, ...] = tuple(
    (when, name, f"{name}\n{when}") for name in ("cumulant", "discount", "answer") for when in ("before", "after")
)
BOTH_WAYS: tuple[MapRow, ...] = (
    ("after", "cumulant", "cumulant"),
    ("after", "discount", "discount"),
    ("after", "follows", "GVF: what\nwill follow"),
    ("after", "came_before", "Reverse GVF: what\nmust have come before"),
)


def draw_maps(game: str, title: str, questions: dict[str, Any], rows: tuple[MapRow, ...], path: Path) -> None:
    """Write a figure with a row for each kind of map and a column for each of the questions whose answers vary most."""
    grid = GRIDS[game]()
    columns = len(questions["chosen"])
    figure = Figure(figsize=(9, 1.9 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), columns, squeeze=False)
    for row, (when, name, label) in zip(panels, rows, strict=True):
        values = np.array(questions[when][name])
        low, high = (0.0, 1.0) if name == "discount" else (-np.abs(values).max(), np.abs(values).max())
        for axes, column in zip(row, values.T, strict=True):
            colours = "viridis" if name == "discount" else "RdBu"
            image = axes.imshow(position_map(grid, column), vmin=low, vmax=high, cmap=colours)
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(label, fontsize=8)
        figure.colorbar(image, ax=list(row), shrink=0.8)
    for axes, question in zip(panels[0], questions["chosen"], strict=True):
        axes.set_title(f"question {question}", fontsize=8)
    figure.suptitle(title + (": left half before, right half after the first object" if grid.phases.any() else ""))
    figure.savefig(path, dpi=110)


def position_map(grid: Grid, values: np.ndarray) -> np.ndarray:
    """Values [S] as an image [rows, columns] of the agent's positions, NaN at unreachable ones; phases are side by side."""
    height, width = grid.cells.max(0) + 2
    phases = grid.phases.max() + 1
    image = np.full((height, phases * width), np.nan)
    image[grid.cells[:, 0], grid.phases * width + grid.cells[:, 1]] = values
    return image
