"""What was asked, as maps over positions: cumulants, discounts and answers before and after training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from envs.grid_games import GRIDS, Grid

ROWS = ("cumulant", "discount", "answer")


def draw_questions(game: str, agent: str, questions: dict[str, Any], path: Path) -> None:
    """Rows: cumulant, discount and answer, each before and after; columns: the four questions whose answers vary most."""
    grid = GRIDS[game]()
    figure = Figure(figsize=(9, 11), layout="constrained")
    columns = len(questions["chosen"])
    panels = figure.subplots(2 * len(ROWS), columns, squeeze=False)
    for r, name in enumerate(ROWS):
        for half, when in enumerate(("before", "after")):
            values = np.array(questions[when][name])
            low, high = (0.0, 1.0) if name == "discount" else (-np.abs(values).max(), np.abs(values).max())
            for c in range(columns):
                axes = panels[2 * r + half][c]
                image = axes.imshow(position_map(grid, values[:, c]), vmin=low, vmax=high, cmap="viridis" if r == 1 else "RdBu")
                axes.set_xticks([])
                axes.set_yticks([])
                if r == half == 0:
                    axes.set_title(f"question {questions['chosen'][c]}", fontsize=8)
            panels[2 * r + half][0].set_ylabel(f"{name}\n{when}", fontsize=8)
            figure.colorbar(image, ax=list(panels[2 * r + half]), shrink=0.8)
    figure.suptitle(
        f"{agent} on {game}" + (": left half before, right half after the first object" if grid.phases.any() else "")
    )
    figure.savefig(path, dpi=110)


def position_map(grid: Grid, values: np.ndarray) -> np.ndarray:
    """[rows, columns] of values [S] at the agent's positions, NaN where it cannot be; phases stand side by side."""
    height, width = grid.cells.max(0) + 2
    phases = grid.phases.max() + 1
    picture = np.full((height, phases * width), np.nan)
    picture[grid.cells[:, 0], grid.phases * width + grid.cells[:, 1]] = values
    return picture
