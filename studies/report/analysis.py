"""All numbers of a report, computed once from the trials; the page and the pictures only show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from envs.atari import published_scores
from studies.report.agents import Agent, in_order
from studies.report.calibration import Calibration
from studies.report.comparisons import Pair, calibrate, judge_pairs, mixed_protocols
from studies.report.estimates import (
    Estimate,
    Scores,
    estimate,
    mean_estimate,
    performance_profile,
    pooled_interquartile_mean,
)
from studies.report.records import Collection, TrialRecord
from studies.statistics import Array

PROFILE_POINTS = 81


@dataclass(frozen=True)
class GameAgent:
    """One agent on one game."""

    game: str
    agent: str
    task: str
    finished: int
    score: Estimate | None
    area: Estimate | None
    """Mean height of the learning curve."""
    minutes: float | None
    """Mean wall time of a trial."""
    frames_per_second: float | None


@dataclass(frozen=True)
class Profile:
    value: Array
    low: Array | None
    high: Array | None


@dataclass(frozen=True)
class Numbers:
    """Games and agents go by their labels."""

    task: str
    """The chosen task, or the one chosen agent."""
    agents: list[Agent]
    games: list[str]
    cells: list[GameAgent]
    pairs: list[Pair]
    calibration: Calibration | None
    human_games: list[str]
    """Games with a published human score and finished trials of every agent: the others would make the agents unlike."""
    human_note: str
    """Which games these are, or why there is no number over them."""
    human_iqm: dict[str, Estimate]
    thresholds: Array
    profiles: dict[str, Profile]


def compute(collection: Collection, chosen: str | None) -> Numbers:
    """The numbers of a report on the chosen task or agent; raises ConfigError if there is none of that name."""
    trials = collection.trials
    agents = in_order(trial.agent for trial in trials)
    games = sorted({trial.game_label for trial in trials})
    chosen = chosen or _default_task([agent.task for agent in agents])

    def values(game: str, agent: Agent, of: Callable[[TrialRecord], float | None] = lambda t: t.score) -> Array:
        return np.array(list(collection.sample(game, agent, of).values()), dtype=float)

    present = {(trial.game_label, trial.agent) for trial in trials}
    cells = [
        GameAgent(
            game,
            agent.label,
            agent.task,
            len(values(game, agent)),
            _mean(values(game, agent)),
            _mean(values(game, agent, lambda t: t.area)),
            _plain_mean(values(game, agent, lambda t: t.wall_seconds), 1 / 60),
            _plain_mean(values(game, agent, lambda t: t.frames_per_second)),
        )
        for game in games
        for agent in agents
        if (game, agent) in present
    ]
    known = {trial.game_label for trial in trials if trial.game in published_scores()}
    human_games = [game for game in games if game in known and all(len(values(game, agent)) for agent in agents)]
    mixed = mixed_protocols(collection, human_games)
    note = _human_note(human_games, games, mixed)
    human: dict[str, Scores] = (
        {agent.label: [values(game, agent, lambda t: t.human_normalised) for game in human_games] for agent in agents}
        if human_games and not mixed
        else {}
    )
    top = max((float(game.max()) for scores in human.values() for game in scores), default=1.0)
    thresholds = np.linspace(0, max(0.1, top), PROFILE_POINTS)
    return Numbers(
        task=chosen,
        agents=agents,
        games=games,
        cells=cells,
        pairs=judge_pairs(collection, chosen),
        calibration=calibrate(collection),
        human_games=human_games if human else [],
        human_note=note,
        human_iqm={name: estimate(pooled_interquartile_mean, scores) for name, scores in human.items()},
        thresholds=thresholds,
        profiles={name: Profile(*performance_profile(scores, thresholds)) for name, scores in human.items()},
    )


def as_json(numbers: Numbers, collection: Collection) -> dict[str, Any]:
    """The same as plain values, rounded to what they mean, without the curves."""
    return rounded(
        {
            "task": numbers.task,
            "agents": [{"label": a.label, "task": a.task, "settings": dict(a.settings)} for a in numbers.agents],
            "games": numbers.games,
            "scores": [asdict(cell) for cell in numbers.cells],
            "comparisons": [asdict(pair) for pair in numbers.pairs],
            "calibration": asdict(numbers.calibration) if numbers.calibration else None,
            "human_normalised": {
                "games": numbers.human_games,
                "note": numbers.human_note,
                "interquartile_mean": {name: asdict(value) for name, value in numbers.human_iqm.items()},
                "thresholds": numbers.thresholds.tolist() if numbers.profiles else [],
                "profiles": {
                    name: {key: None if v is None else v.tolist() for key, v in vars(profile).items()}
                    for name, profile in numbers.profiles.items()
                },
            },
            "trials": [trial_row(trial) for trial in collection.trials],
            "not_begun": collection.missing,
            "failed": collection.failed,
            "problems": collection.problems,
            "commands": collection.commands,
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


def rounded(value: Any) -> Any:
    """Numbers to eight digits, so that the last bits of a different processor do not show."""
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
        return f"No number over games: {mixed}. Make a report of the trials of each protocol."
    if not human_games:
        return "No game has both a published human score and finished trials of every agent."
    left_out = ", ".join(game for game in games if game not in human_games)
    note = f"Over {', '.join(human_games)}."
    return note + (
        f" Left out, for want of a human score or of finished trials of every agent: {left_out}." if left_out else ""
    )


def _mean(values: Array) -> Estimate | None:
    return mean_estimate(values) if len(values) else None


def _plain_mean(values: Array, scale: float = 1.0) -> float | None:
    return fmean(values) * scale if len(values) else None
