"""All statistics of a report, computed once from the trials; the page, the figures and report.json show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from envs.atari import published_scores
from studies.report.agents import AgentVariant, sort_agents
from studies.report.calibration import Calibration
from studies.report.comparisons import AgentPair, calibrate, compare_agents, mixed_protocols
from studies.report.estimates import (
    Estimate,
    Scores,
    estimate,
    mean_estimate,
    mean_ratio,
    performance_profile,
    pooled_interquartile_mean,
    two_sample_estimate,
)
from studies.report.records import TrialRecord, TrialRecords
from studies.statistics import Array

PROFILE_POINTS = 81
JSON_KEYS = {"p_value": "chance", "holm_p_value": "corrected", "false_positive_rate": "claims"}
"""Keys of report.json that differ from the names of the fields."""


@dataclass(frozen=True)
class GameAgent:
    """Scores and cost of one agent on one game."""

    game: str
    agent: str
    task: str
    finished: int
    score: Estimate | None
    area: Estimate | None
    """Area under the learning curve, divided by its width."""
    minutes: float | None
    """Mean wall time of a trial."""
    frames_per_second: float | None


@dataclass(frozen=True)
class Profile:
    value: Array
    low: Array | None
    high: Array | None


@dataclass(frozen=True)
class RelativeAreas:
    """Areas under the learning curve divided by the mean area of the plain agent on the same game."""

    baseline: str
    """Label of the plain agent; empty if there is none, and then nothing else is known."""
    games: list[str]
    """Games with finished trials of every agent on which all areas of the baseline are above 0."""
    by_game: dict[str, dict[str, Estimate]]
    """By agent and game."""
    overall: dict[str, Estimate]
    """By agent, the mean over the games; empty if they were played under different protocols."""


@dataclass(frozen=True)
class Analysis:
    """The statistics of a report; games and agents are named by their labels."""

    task: str
    """The task that the report is about, or the label of one of its agents."""
    agents: list[AgentVariant]
    games: list[str]
    cells: list[GameAgent]
    pairs: list[AgentPair]
    calibration: Calibration | None
    relative_areas: RelativeAreas
    human_games: list[str]
    """Games with a published human score and finished trials of every agent: all agents are aggregated over the same games."""
    human_note: str
    """Names these games, or gives the reason why scores are not aggregated."""
    human_iqm: dict[str, Estimate]
    thresholds: Array
    profiles: dict[str, Profile]


def analyse(records: TrialRecords, chosen: str | None) -> Analysis:
    """The statistics of a report on the chosen task or agent; raises ConfigError if there is none of that name."""
    trials = records.trials
    agents = sort_agents(trial.agent for trial in trials)
    games = sorted({trial.game_label for trial in trials})
    chosen = chosen or _default_task([agent.task for agent in agents])

    def values(game: str, agent: AgentVariant, of: Callable[[TrialRecord], float | None] = lambda t: t.score) -> Array:
        return np.array(list(records.sample(game, agent, of).values()), dtype=float)

    present = {(trial.game_label, trial.agent) for trial in trials}
    cells = [
        GameAgent(
            game,
            agent.label,
            agent.task,
            len(values(game, agent)),
            _mean_or_none(values(game, agent)),
            _mean_or_none(values(game, agent, lambda t: t.area)),
            _scaled_mean(values(game, agent, lambda t: t.wall_seconds), 1 / 60),
            _scaled_mean(values(game, agent, lambda t: t.frames_per_second)),
        )
        for game in games
        for agent in agents
        if (game, agent) in present
    ]
    known = {trial.game_label for trial in trials if trial.game in published_scores()}
    human_games = [game for game in games if game in known and all(len(values(game, agent)) for agent in agents)]
    mixed = mixed_protocols(records, human_games)
    note = _human_note(human_games, games, mixed)
    human: dict[str, Scores] = (
        {agent.label: [values(game, agent, lambda t: t.human_normalised) for game in human_games] for agent in agents}
        if human_games and not mixed
        else {}
    )
    top = max((float(game.max()) for scores in human.values() for game in scores), default=1.0)
    thresholds = np.linspace(0, max(0.1, top), PROFILE_POINTS)
    return Analysis(
        task=chosen,
        agents=agents,
        games=games,
        cells=cells,
        pairs=compare_agents(records, chosen),
        calibration=calibrate(records),
        relative_areas=relative_areas(records, agents, games),
        human_games=human_games if human else [],
        human_note=note,
        human_iqm={name: estimate(pooled_interquartile_mean, scores) for name, scores in human.items()},
        thresholds=thresholds,
        profiles={name: Profile(*performance_profile(scores, thresholds)) for name, scores in human.items()},
    )


def relative_areas(records: TrialRecords, agents: list[AgentVariant], games: list[str]) -> RelativeAreas:
    """Areas relative to the plain agent, with intervals over the seeds of both."""
    baseline = next((agent for agent in agents if agent.task == "none"), None)
    if baseline is None:
        return RelativeAreas("", [], {}, {})
    areas = {
        agent: {game: np.array(list(records.sample(game, agent, lambda t: t.area).values()), dtype=float) for game in games}
        for agent in agents
    }
    complete = [game for game in games if all(len(areas[agent][game]) for agent in agents)]
    used = [game for game in complete if areas[baseline][game].min() > 0]

    def ratio(agent: AgentVariant, over: list[str]) -> Estimate:
        return two_sample_estimate(mean_ratio, [areas[agent][game] for game in over], [areas[baseline][game] for game in over])

    others = [agent for agent in agents if agent != baseline] if used else []
    return RelativeAreas(
        baseline.label,
        used,
        {agent.label: {game: ratio(agent, [game]) for game in used} for agent in others},
        {} if mixed_protocols(records, used) else {agent.label: ratio(agent, used) for agent in others},
    )


def as_json(analysis: Analysis, records: TrialRecords) -> dict[str, Any]:
    """The content of report.json: the statistics and the trials, rounded, without the curves."""
    return rounded(
        {
            "task": analysis.task,
            "agents": [{"label": a.label, "task": a.task, "settings": dict(a.settings)} for a in analysis.agents],
            "games": analysis.games,
            "scores": [asdict(cell) for cell in analysis.cells],
            "comparisons": [_with_json_keys(asdict(pair)) for pair in analysis.pairs],
            "calibration": _with_json_keys(asdict(analysis.calibration)) if analysis.calibration else None,
            "relative_area": asdict(analysis.relative_areas),
            "human_normalised": {
                "games": analysis.human_games,
                "note": analysis.human_note,
                "interquartile_mean": {name: asdict(value) for name, value in analysis.human_iqm.items()},
                "thresholds": analysis.thresholds.tolist() if analysis.profiles else [],
                "profiles": {
                    name: {key: None if v is None else v.tolist() for key, v in vars(profile).items()}
                    for name, profile in analysis.profiles.items()
                },
            },
            "trials": [trial_row(trial) for trial in records.trials],
            "not_begun": records.missing,
            "failed": records.failed,
            "problems": records.problems,
            "commands": records.commands,
        }
    )


def trial_row(trial: TrialRecord) -> dict[str, Any]:
    return {
        "trial": trial.name,
        "game": trial.game,
        "task": trial.task,
        "agent": trial.agent.label,
        "seed": trial.seed,
        "protocol": trial.protocol,
        "state": "finished" if trial.finished else "unfinished",
        "frames": trial.reached,
        "of_frames": trial.frames,
        "score": trial.score,
        "evaluated_games": trial.evaluated_games,
        "human_normalised": trial.human_normalised,
        "area_under_curve": trial.area,
        "wall_seconds": trial.wall_seconds,
        "frames_per_second": trial.frames_per_second,
    }


def _with_json_keys(value: Any) -> Any:
    """A nested dictionary with the keys that report.json has always had."""
    if isinstance(value, dict):
        return {JSON_KEYS.get(key, key): _with_json_keys(item) for key, item in value.items()}
    return value


def rounded(value: Any) -> Any:
    """Floats rounded to eight digits, because the last bits depend on the processor."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value


def _default_task(tasks: list[str]) -> str:
    if "reverse_gvf" in tasks:
        return "reverse_gvf"
    return next((name for name in reversed(tasks) if name != "none"), tasks[0])


def _human_note(human_games: list[str], games: list[str], mixed: str) -> str:
    if mixed:
        return f"Not aggregated over games: {mixed}. Make one report for each protocol."
    if not human_games:
        return "No game has both a published human score and finished trials of every agent."
    left_out = ", ".join(game for game in games if game not in human_games)
    note = f"Over {', '.join(human_games)}."
    return note + (
        f" Left out, without a human score or without finished trials of every agent: {left_out}." if left_out else ""
    )


def _mean_or_none(values: Array) -> Estimate | None:
    return mean_estimate(values) if len(values) else None


def _scaled_mean(values: Array, scale: float = 1.0) -> float | None:
    return fmean(values) * scale if len(values) else None
