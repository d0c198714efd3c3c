"""Do discovered questions teach a representation? The small domains of Veeriah et al. 2019, with GVFs and Reverse GVFs.

The torso is trained by the auxiliary loss alone, so the policy is only as good as the representation that the questions teach.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from configs.commands import ReproduceConfig
from envs.grid_games import GRIDS
from studies.reproduce.discovery_figures import BOTH_WAYS, QUESTIONS, draw_maps
from studies.reproduce.discovery_run import AGENTS, agent_config, run_agent
from studies.reproduce.experiment import Experiment, Settings
from studies.statistics import area_under_curve, bootstrap_interval, mean, probability_of_improvement

SETTINGS: Settings = {
    "frames": {"collect_objects": 80_000, "puddleworld": 60_000},
    "points": 40,
    "common": {
        "unroll": 20,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "warm_up_updates": 100,
        "entropy_cost": 0.02,
        "num_questions": 32,
        "normalise_cumulants": False,
        "answer_weight": 1.0,
        "reward_prediction_weight": 10.0,
        "reward_prediction_target": "value",
        "pixel_control_weight": 0.1,
        "meta_interval": 5,
        "meta_learning_rate": 1e-3,
    },
    "sensitivity_game": "collect_objects",
    "sensitivity_agent": "reverse_gvf",
}
SENSITIVITIES: dict[str, dict[str, Any]] = {
    "K = 1": {"meta_interval": 1},
    "K = 10": {"meta_interval": 10},
    "8 questions": {"num_questions": 8},
    "128 questions": {"num_questions": 128},
    "first order": {"meta_gradient": "first_order"},
    "cumulants standardised": {"normalise_cumulants": True},
}
PERIODS: dict[str, dict[str, Any]] = {
    "M = 2 K": {"meta_period": 10},
    "M = 2 K, learning rate of the questions doubled": {"meta_period": 10, "meta_learning_rate": 2e-3},
    "M = 4 K": {"meta_period": 20},
    "M = 4 K, learning rate of the questions times 4": {"meta_period": 20, "meta_learning_rate": 4e-3},
}
"""Longer periods M between updates of the questions, on every domain. Names of variants are recorded in settings.json."""
DEFAULT_RUNS = 10
PAIRS = (("gvf", "random_gvf"), ("reverse_gvf", "random_reverse_gvf"))


@dataclass(frozen=True)
class Cell:
    """A game, an agent and changes of its settings; it is run once per seed."""

    game: str
    agent: str
    variant: str = ""
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def shows_questions(self) -> bool:
        """Whether the questions of the first seed are drawn as maps."""
        return self.agent in ("gvf", "reverse_gvf") and not self.variant


def cells() -> list[Cell]:
    main = [Cell(game, agent) for game in SETTINGS["frames"] for agent in AGENTS]
    game, agent = SETTINGS["sensitivity_game"], SETTINGS["sensitivity_agent"]
    sensitivities = [Cell(game, agent, name, changes) for name, changes in SENSITIVITIES.items()]
    return main + sensitivities + [Cell(game, agent, *period) for game in SETTINGS["frames"] for period in PERIODS.items()]


def reproduce_discovery(config: ReproduceConfig, stop: threading.Event) -> str:
    """Write data.json, figure.png, questions_*.png, both_ways_*.png and summary.md; return the summary."""
    design = cells()
    settings = SETTINGS | {"study": "discovery", "seed": config.seed, "cells": [asdict(cell) for cell in design]}
    experiment = Experiment(Path(config.out), settings, config.ray_address)
    seeds = config.runs_or(DEFAULT_RUNS)
    data = experiment.collect(seeds * len(design), 1, run_cells, "reproduce discovery", stop)
    curves = {
        (cell.game, cell.agent, cell.variant): np.array([run["scores"] for run in data[i :: len(design)]])
        for i, cell in enumerate(design)
    }
    draw_curves(curves, experiment.out / "figure.png")
    for i, cell in enumerate(design):
        if cell.shows_questions:
            title, asked = f"{cell.agent} on {cell.game}", data[i]["questions"]
            for kind, rows in (("questions", QUESTIONS), ("both_ways", BOTH_WAYS)):
                draw_maps(cell.game, title, asked, rows, experiment.out / f"{kind}_{cell.game}_{cell.agent}.png")
    experiment.write_json("data.json", table(curves))
    summary = summarise(curves, seeds)
    experiment.write_text("summary.md", summary)
    return summary


def run_cells(settings: Settings, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Make runs by number: run n is cell n mod C with seed n div C, where C counts the cells, so more seeds append runs."""
    found = []
    for number in numbers:
        seed, index = divmod(number, len(settings["cells"]))
        cell = Cell(**settings["cells"][index])
        chosen = settings["common"] | cell.changes
        config = agent_config(cell.game, cell.agent, settings["seed"] + seed + 1, settings["frames"][cell.game], chosen)
        found.append(run_agent(config, settings["points"], maps=seed == 0 and cell.shows_questions))
    return found


def final_score(curves: np.ndarray) -> np.ndarray:
    """The mean score over the last tenth of each curve, [runs]."""
    return curves[:, -max(1, curves.shape[1] // 10) :].mean(1)


Curves = dict[tuple[str, str, str], np.ndarray]
Measure = Callable[[np.ndarray], np.ndarray]
MEASURES: dict[str, Measure] = {"mean score over the run": area_under_curve, "score at the end": final_score}


def table(curves: Curves) -> dict[str, Any]:
    rows = []
    for (game, agent, variant), samples in curves.items():
        low, high = bootstrap_interval(mean, samples)
        area = area_under_curve(samples)
        area_low, area_high = bootstrap_interval(mean, area)
        rows.append(
            {
                "game": game,
                "agent": agent,
                "variant": variant,
                "mean": samples.mean(0).tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
                "areas": area.tolist(),
                "area_mean": float(area.mean()),
                "area_interval": [float(area_low), float(area_high)],
            }
        )
    optima = {game: GRIDS[game]().optimal_score for game in SETTINGS["frames"]}
    return {"optimal_scores": optima, "rows": rows}


def draw_curves(curves: Curves, path: Path) -> None:
    games = list(SETTINGS["frames"])
    figure = Figure(figsize=(6 * len(games), 4.5), layout="constrained")
    panels = figure.subplots(1, len(games), squeeze=False)[0]
    for axes, game in zip(panels, games, strict=True):
        points = SETTINGS["points"]
        frames = np.arange(1, points + 1) * SETTINGS["frames"][game] / points
        for agent in AGENTS:
            samples = curves[game, agent, ""]
            low, high = bootstrap_interval(mean, samples)
            style = {"random_gvf": "--", "random_reverse_gvf": "--", "untrained": ":", "impala": ":"}.get(agent, "-")
            axes.plot(frames, samples.mean(0), style, label=agent)
            axes.fill_between(frames, low, high, alpha=0.15)
        axes.axhline(GRIDS[game]().optimal_score, color="0.6", linewidth=1, label="optimal")
        axes.set(title=game, xlabel="frames", ylabel="score")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=7)
    figure.savefig(path, dpi=120)


def summarise(curves: Curves, seeds: int) -> str:
    lines = [
        "# Discovery of useful questions",
        "",
        f"{seeds} seeds. All but `impala` stop the main task's gradient at the torso.",
    ]
    disjoint: dict[str, list[bool]] = {name: [] for name in MEASURES}
    for game in SETTINGS["frames"]:
        lines += [
            "",
            f"## {game}",
            "",
            f"{SETTINGS['frames'][game]:,} frames; the best possible score is {GRIDS[game]().optimal_score:.3f}.",
            "",
            "| agent | " + " | ".join(f"{name} (95% interval)" for name in MEASURES) + " |",
            "| --- |" + " --- |" * len(MEASURES),
        ]
        for agent in AGENTS:
            measured = (_interval(measure(curves[game, agent, ""])) for measure in MEASURES.values())
            lines.append(f"| {agent} | {' | '.join(measured)} |")
        lines.append("")
        for name, measure in MEASURES.items():
            compared = [_compare(curves, game, pair, name, measure) for pair in PAIRS]
            lines += [line for line, _ in compared]
            disjoint[name].append(any(beaten for _, beaten in compared))
    game, agent = SETTINGS["sensitivity_game"], SETTINGS["sensitivity_agent"]
    lines += [
        "",
        f"## What matters: {agent} on {game}",
        "",
        "| variant | mean score over the run (95% interval) |",
        "| --- | --- |",
    ]
    for variant in ("", *SENSITIVITIES):
        name = (
            variant
            or f"as above (K = {SETTINGS['common']['meta_interval']}, {SETTINGS['common']['num_questions']} questions, exact)"
        )
        lines.append(f"| {name} | {_interval(area_under_curve(curves[game, agent, variant]))} |")
    lines += _periods(curves)
    lines += [
        "",
        "That discovered questions beat random ones, with intervals that do not overlap, for at least one form on each domain,",
        *(f"- by the {name} **{'holds' if all(domains) else 'does not hold'}**." for name, domains in disjoint.items()),
    ]
    return "\n".join(lines) + "\n"


def _periods(curves: Curves) -> list[str]:
    agent = SETTINGS["sensitivity_agent"]
    lines = ["", f"## How often the questions of {agent} must change", ""]
    lines += ["| domain | period | " + " | ".join(f"{name} (95% interval)" for name in MEASURES) + " |"]
    lines += ["| --- | --- |" + " --- |" * len(MEASURES)]
    for game in SETTINGS["frames"]:
        for period in ("", *PERIODS):
            measured = " | ".join(_interval(measure(curves[game, agent, period])) for measure in MEASURES.values())
            lines.append(f"| {game} | {period or 'M = K'} | {measured} |")
    return lines


def _compare(curves: Curves, game: str, pair: tuple[str, str], name: str, measure: Measure) -> tuple[str, bool]:
    """A line that compares discovered with random questions, and whether the confidence intervals are disjoint.

    Both agents start from the same weights and games for each seed, so paired differences have less variance.
    """
    ours, theirs = (measure(curves[game, agent, ""]) for agent in pair)
    probability = probability_of_improvement(ours, theirs)
    low, high = bootstrap_interval(probability_of_improvement, ours, theirs)
    disjoint = bool(bootstrap_interval(mean, ours)[0] > bootstrap_interval(mean, theirs)[1])
    line = (
        f"- Probability that {pair[0]} exceeds {pair[1]} ({name}): {probability:.2f} ({low:.2f} to {high:.2f});"
        f" the intervals of their means {'do not overlap' if disjoint else 'overlap'}."
        f" Seed by seed it is higher by {_interval(ours - theirs)}, for {(ours > theirs).sum()} of {len(ours)}."
    )
    return line, disjoint


def _interval(sample: np.ndarray) -> str:
    low, high = bootstrap_interval(mean, sample)
    return f"{sample.mean():.3f} ({low:.3f} to {high:.3f})"
