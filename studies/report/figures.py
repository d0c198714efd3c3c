"""The figures of a report as PNG bytes; the same statistics give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from studies.report.agents import AgentVariant
from studies.report.analysis import Analysis
from studies.report.comparisons import AgentPair
from studies.report.estimates import Estimate
from studies.report.records import TrialRecord, TrialRecords, curve_frames
from studies.statistics import bootstrap_interval, mean

COLOURS = {
    "none": "#555555",
    "reward_prediction": "#e69f00",
    "pixel_control": "#56b4e9",
    "gvf": "#0072b2",
    "reverse_gvf": "#d55e00",
    "random_gvf": "#009e73",
    "random_reverse_gvf": "#cc79a7",
}
"""The colour-blind safe palette of Okabe and Ito."""
MORE_COLOURS = ("#f0e442", "#882255", "#44aa99", "#332288", "#ddcc77", "#117733", "#aa4499", "#88ccee", "#999933", "#cc6677")
"""For further agents (Tol's muted scheme)."""
MAX_RATIO = 2.0
"""Bars of the paper's ratio are clipped here; the number beside them is not."""
MIN_RATIO = 0.1
"""The axis spans at least this, so that tiny differences do not look large."""
MAX_PANELS = 40
"""Comparisons in one figure; it bounds the size of the image."""
DPI = 110
STYLE: Any = {
    "text.parse_math": False,  # Names of games may contain dollar signs.
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def colours(agents: Sequence[AgentVariant]) -> dict[str, str]:
    """Colour by agent label: the first agent of a built-in task has the task's colour, the others cycle through the rest."""
    first = {agent.task: agent.label for agent in reversed(agents) if agent.task in COLOURS}
    chosen = {label: COLOURS[task] for task, label in first.items()}
    unused = [colour for colour in COLOURS.values() if colour not in chosen.values()]
    others = cycle([*unused, *MORE_COLOURS])
    return {agent.label: chosen.get(agent.label) or next(others) for agent in agents}


def draw_all(analysis: Analysis, records: TrialRecords) -> dict[str, bytes]:
    """PNG bytes by figure name; figures without data are left out."""
    drawers: dict[str, Callable[[], Figure | None]] = {
        "curves": lambda: draw_curves(analysis, records),
        "relative_area": lambda: draw_relative_areas(analysis),
        "improvement": lambda: draw_improvement(analysis),
        "probability": lambda: draw_probability(analysis),
        "human_normalised": lambda: draw_human_normalised(analysis),
        "profiles": lambda: draw_profiles(analysis),
    }
    figures = {}
    with matplotlib.rc_context(STYLE):
        for name, draw in drawers.items():
            figure = draw()
            if figure is not None:
                file = io.BytesIO()
                figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
                figures[name] = file.getvalue()
    return figures


def draw_curves(analysis: Analysis, records: TrialRecords) -> Figure | None:
    """A panel per game: mean and bootstrap band over finished trials, thin dotted lines for unfinished ones."""
    if not any(len(trial.curve[0]) for trial in records.trials):
        return None
    columns = min(3, len(analysis.games))
    rows = -(-len(analysis.games) // columns)
    legend_height = 0.5 + 0.18 * (len(analysis.agents) // 4)
    figure = Figure(figsize=(max(7, 3.1 * columns), 2.6 * rows + legend_height), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    palette = colours(analysis.agents)
    for game, axes in zip(analysis.games, panels, strict=False):
        for agent in analysis.agents:
            trials = [t for t in records.trials if t.game_label == game and t.agent == agent and len(t.curve[0])]
            _draw_agent(axes, trials, agent.label, palette[agent.label])
        axes.set(title=game, xlabel="environment frames", ylabel="return")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 100k
    for axes in panels[len(analysis.games) :]:
        axes.axis("off")
    handles, labels = _legend(figure)
    if any(not trial.finished for trial in records.trials):
        handles, labels = (
            [*handles, Line2D([], [], color="#777777", linewidth=0.8, linestyle=":")],
            [*labels, "unfinished trial"],
        )
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
    return figure


def _draw_agent(axes: Axes, trials: list[TrialRecord], label: str, colour: str) -> None:
    finished = [trial for trial in trials if trial.finished]
    if finished:
        frames = curve_frames(min(trial.frames for trial in finished))
        curves = np.array([trial.returns_at(frames) for trial in finished])
        axes.plot(frames, curves.mean(0), color=colour, label=label)
        if len(finished) > 1:
            low, high = bootstrap_interval(mean, curves)
            axes.fill_between(frames, low, high, color=colour, alpha=0.2, linewidth=0)
    for trial in trials:
        if not trial.finished:
            axes.plot(*trial.curve, color=colour, linewidth=0.8, linestyle=":")


def _legend(figure: Figure) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def draw_relative_areas(analysis: Analysis) -> Figure | None:
    """A panel for all games together and one per game; a point per agent."""
    found = analysis.relative_areas
    if not found.by_game:
        return None
    panels = [("all games", found.overall)] if found.overall and len(found.games) > 1 else []
    panels += [(game, {agent: values[game] for agent, values in found.by_game.items()}) for game in found.games]
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    height = (0.24 * len(found.by_game) + 0.6) * rows + 0.6
    figure = Figure(figsize=(max(7, 1.7 + 2.0 * columns), height), layout="constrained")
    palette = colours(analysis.agents)
    grid = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axes in grid[len(panels) :]:
        axes.axis("off")
    for (title, values), axes in zip(panels, grid, strict=False):
        _draw_points(axes, [(agent, value, palette[agent]) for agent, value in values.items()])
        axes.axvline(1, color="black", linewidth=0.8, linestyle="--")
        axes.set_title(title, fontsize=9, fontweight="bold" if title == "all games" else "normal")
    figure.supxlabel(f"area under the learning curve, relative to {found.baseline}", fontsize=9)
    return figure


def draw_improvement(analysis: Analysis) -> Figure | None:
    """The paper's figure 4: a panel per comparison, a bar per game."""
    shown = [pair for pair in analysis.pairs if pair.improvements]
    pairs = shown[:MAX_PANELS]
    if not pairs:
        return None
    games, limit = analysis.games, _ratio_limit(pairs)
    palette = colours(analysis.agents)
    columns = min(2, len(pairs))
    rows = -(-len(pairs) // columns)
    figure = Figure(figsize=(max(7, 4.4 * columns), (0.3 * len(games) + 0.9) * rows + 0.3), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axes in panels[len(pairs) :]:
        axes.axis("off")
    for pair, axes in zip(pairs, panels, strict=False):
        for row, game in enumerate(games):
            found = pair.improvements.get(game)
            value = found.estimate if found else None
            if value is None:
                axes.text(0, row, " undefined" if found else " no trials", va="center", fontsize=7, color="#777777")
                continue
            axes.barh(row, np.clip(value.value, -limit, limit), color=palette[pair.agent], height=0.6)
            _draw_interval(axes, row, value, limit)
            mark = "" if value.low is not None else " ?"
            axes.text(limit * 1.08, row, f"{value.value:+.0%}{mark}", va="center", fontsize=7)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_title(_title(analysis, pair), fontsize=9)
        axes.set(xlim=(-limit * 1.05, limit * 1.6), ylim=(len(games) - 0.4, -0.6))
        axes.set_yticks(range(len(games)), games)
        axes.set_xticks([tick for tick in MaxNLocator(4, symmetric=True).tick_values(-limit, limit) if abs(tick) <= limit])
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    left_out = f" (the first {len(pairs)} of {len(shown)} comparisons)" if len(pairs) < len(shown) else ""
    figure.suptitle(f"{analysis.task}: improvement (A1 - A2)/|A2| of the final score{left_out}")
    return figure


def _ratio_limit(pairs: Sequence[AgentPair]) -> float:
    """The limit of the axis: the largest absolute value of a bar or interval, clipped to [MIN_RATIO, MAX_RATIO]."""
    estimates = [found.estimate for pair in pairs for found in pair.improvements.values() if found.estimate]
    ends = [abs(end) for e in estimates for end in (e.value, e.low, e.high) if end is not None]
    return float(np.clip(max(ends, default=0.0), MIN_RATIO, MAX_RATIO))


def _title(analysis: Analysis, pair: AgentPair) -> str:
    several = len({pair.agent for pair in analysis.pairs}) > 1
    return f"{pair.agent}\nover {pair.other}" if several else f"over {pair.other}"


def draw_probability(analysis: Analysis) -> Figure | None:
    palette = colours(analysis.agents)
    several = len({pair.agent for pair in analysis.pairs}) > 1
    rows = [
        (f"{pair.agent}\nover {pair.other}" if several else pair.other, pair.final_score.overall.estimate, palette[pair.other])
        for pair in analysis.pairs
        if pair.final_score.overall.estimate
    ][:MAX_PANELS]
    if not rows:
        return None
    figure = Figure(figsize=(7, 0.4 * len(rows) + 1.3), layout="constrained")
    axes = figure.subplots()
    _draw_points(axes, rows)
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle="--")
    figure.suptitle(f"probability that a run of {analysis.task} beats a run of the other agent", fontsize=10)
    axes.set(xlim=(-0.02, 1.02), xlabel="probability of improvement (final score, averaged over games)")
    return figure


def draw_human_normalised(analysis: Analysis) -> Figure | None:
    if not analysis.human_iqm:
        return None
    palette = colours(analysis.agents)
    rows = [(agent, value, palette[agent]) for agent, value in analysis.human_iqm.items()]
    figure = Figure(figsize=(7, 0.4 * len(rows) + 1.3), layout="constrained")
    axes = figure.subplots()
    _draw_points(axes, rows)
    count = len(analysis.human_games)
    axes.set(title=f"human-normalised score, {count} game{'s' if count > 1 else ''}", xlabel="interquartile mean")
    return figure


def draw_profiles(analysis: Analysis) -> Figure | None:
    if not analysis.profiles:
        return None
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    palette = colours(analysis.agents)
    for agent, profile in analysis.profiles.items():
        axes.plot(analysis.thresholds, profile.value, color=palette[agent], label=agent)
        if profile.low is not None and profile.high is not None:
            axes.fill_between(analysis.thresholds, profile.low, profile.high, color=palette[agent], alpha=0.15, linewidth=0)
    axes.set(xlabel="human-normalised score s", ylabel="share of runs above s", ylim=(-0.02, 1.02))
    axes.legend(frameon=False)
    return figure


def _draw_points(axes: Axes, rows: list[tuple[str, Estimate, str]]) -> None:
    """Point estimates with intervals; a label, an estimate and a colour for each row."""
    for row, (_, value, colour) in enumerate(rows):
        axes.plot(value.value, row, "o", color=colour)
        _draw_interval(axes, row, value, None, colour)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)


def _draw_interval(axes: Axes, row: int, value: Estimate, limit: float | None, colour: str = "black") -> None:
    if value.low is None or value.high is None:
        return
    low, high = (value.low, value.high) if limit is None else np.clip([value.low, value.high], -limit, limit)
    axes.plot([low, high], [row, row], color=colour, linewidth=1.5, solid_capstyle="butt")
