"""All numbers of a report, computed once from the trials; the page and the pictures only show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from configs.train import TaskName
from envs.atari import published_scores
from studies.comparison_statistics import (
    Estimate,
    Improvement,
    Scores,
    estimate,
    improvement,
    mean_estimate,
    performance_profile,
    pooled_interquartile_mean,
)
from studies.statistics import Array
from studies.trial_records import Collection, TrialRecord
from studies.verdicts import Verdict, judge_game, judge_games

PROFILE_POINTS = 81


@dataclass(frozen=True)
class GameTask:
    """One task on one game."""

    game: str
    task: TaskName
    finished: int
    score: Estimate | None
    area: Estimate | None
    """Mean height of the learning curve."""
    minutes: float | None
    """Mean wall time of a trial."""
    frames_per_second: float | None


@dataclass(frozen=True)
class Pair:
    """The chosen task against another one."""

    other: TaskName
    improvements: dict[str, Improvement]
    """By game, where both have finished trials."""
    games: dict[str, Verdict]
    overall: Verdict


@dataclass(frozen=True)
class Profile:
    value: Array
    low: Array | None
    high: Array | None


@dataclass(frozen=True)
class Numbers:
    task: TaskName
    tasks: list[TaskName]
    games: list[str]
    cells: list[GameTask]
    pairs: list[Pair]
    human_games: list[str]
    """Games with a published human score and finished trials of every task: the others would make the tasks unlike."""
    human_iqm: dict[TaskName, Estimate]
    thresholds: Array
    profiles: dict[TaskName, Profile]


def compute(collection: Collection, task: TaskName | None, order: tuple[TaskName, ...]) -> Numbers:
    """`order` is the one in which tasks are shown."""
    trials = collection.trials
    tasks = sorted({trial.task for trial in trials}, key=order.index)
    games = sorted({trial.game for trial in trials})
    chosen = task or _default_task(tasks)

    def values(game: str, task: TaskName, of: Callable[[TrialRecord], float | None] = lambda t: t.score) -> Array:
        found = (of(t) for t in trials if t.game == game and t.task == task and t.finished)
        return np.array([value for value in found if value is not None], dtype=float)

    cells = [
        GameTask(
            game,
            name,
            len(values(game, name)),
            _mean(values(game, name)),
            _mean(values(game, name, lambda t: t.area)),
            _plain_mean(values(game, name, lambda t: t.wall_seconds), 1 / 60),
            _plain_mean(values(game, name, lambda t: t.frames_per_second)),
        )
        for game in games
        for name in tasks
    ]
    pairs = []
    for other in (name for name in tasks if name != chosen):
        both = [game for game in games if len(values(game, chosen)) and len(values(game, other))]
        pairs.append(
            Pair(
                other,
                {game: improvement(values(game, chosen), values(game, other)) for game in both},
                {game: judge_game(values(game, chosen), values(game, other)) for game in games},
                judge_games([values(game, chosen) for game in both], [values(game, other) for game in both]),
            )
        )
    human_games = [g for g in games if g in published_scores() and all(len(values(g, name)) for name in tasks)]
    human: dict[TaskName, Scores] = (
        {name: [values(game, name, lambda t: t.human_normalised) for game in human_games] for name in tasks}
        if human_games
        else {}
    )
    top = max((float(game.max()) for scores in human.values() for game in scores), default=1.0)
    thresholds = np.linspace(0, max(0.1, top), PROFILE_POINTS)
    return Numbers(
        task=chosen,
        tasks=tasks,
        games=games,
        cells=cells,
        pairs=pairs,
        human_games=human_games,
        human_iqm={name: estimate(pooled_interquartile_mean, scores) for name, scores in human.items()},
        thresholds=thresholds,
        profiles={name: Profile(*performance_profile(scores, thresholds)) for name, scores in human.items()},
    )


def as_json(numbers: Numbers, collection: Collection) -> dict[str, Any]:
    """The same as plain values, rounded to what they mean, without the curves."""
    return rounded(
        {
            "task": numbers.task,
            "tasks": numbers.tasks,
            "games": numbers.games,
            "scores": [asdict(cell) for cell in numbers.cells],
            "comparisons": [asdict(pair) for pair in numbers.pairs],
            "human_normalised": {
                "games": numbers.human_games,
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


def _default_task(tasks: list[TaskName]) -> TaskName:
    if "reverse_gvf" in tasks:
        return "reverse_gvf"
    return next((name for name in reversed(tasks) if name != "none"), tasks[0])


def _mean(values: Array) -> Estimate | None:
    return mean_estimate(values) if len(values) else None


def _plain_mean(values: Array, scale: float = 1.0) -> float | None:
    return fmean(values) * scale if len(values) else None
