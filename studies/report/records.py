"""Reads trials from run directories and archives, finished or not; unreadable ones are listed and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import RunError
from configs.train import TrainConfig, learning_settings
from envs.atari import published_scores
from envs.registry import applied_protocol
from studies.compare.archive import SUFFIX, archived_name, read_archive
from studies.compare.sweep import FAILURES_FILE, read_json, read_sweep, sweep_file, trial_name
from studies.report.agents import AgentVariant, code_version_problems, sort_agents, unequal_settings_problems, with_labels
from studies.statistics import Array, area_under_curve
from training.storage.metrics_file import MAX_FRAMES, read_metrics
from training.storage.run_directory import RunDirectory, check_no_file, looking_into

MAX_NUMBER = 1e300
LONGEST_NAME = 300
"""Characters of the name of a game, task or torso."""
CURVE_POINTS = 100
"""Evenly spaced points at which curves are averaged and compared."""


@dataclass(frozen=True)
class TrialRecord:
    """One trial: its settings, curve and, if it is finished, its score."""

    name: str
    game: str
    task: str
    seed: int
    protocol: str | None
    """Of Atari games; None for other games."""
    frames: int
    """Environment frames of the whole trial."""
    settings: dict[str, Any]
    """Settings that alter learning with this task."""
    eval_episodes: int
    curve: tuple[Array, Array]
    """Frames, and the mean score of the last 100 games at each of them."""
    reached: int
    """Frames trained so far."""
    score: float | None = None
    """Mean score of the evaluation, or of the last games of training if there was none; None for an unfinished trial."""
    evaluated_games: int = 0
    wall_seconds: float | None = None
    frames_per_second: float | None = None
    origin: dict[str, Any] = field(default_factory=dict)
    """Commit, versions and machine."""
    commits: tuple[str, ...] = ()
    """Commits of the code that ran the trial, in order; several if it was resumed with other code."""
    agent: AgentVariant = field(default_factory=lambda: AgentVariant(""))
    """Depends on the other trials of the report."""
    game_label: str = ""
    """The game, with its protocol if the report has several of that game."""

    @property
    def finished(self) -> bool:
        return self.score is not None

    @property
    def human_normalised(self) -> float | None:
        reference = published_scores().get(self.game)
        return None if reference is None or self.score is None else reference.human_normalised(self.score)

    def returns_at(self, frames: Array) -> Array:
        """The curve at other frames, by linear interpolation, constant beyond its ends."""
        return np.interp(frames, *self.curve)

    @property
    def area(self) -> float | None:
        """Area under the curve of a finished trial, divided by its width."""
        if not self.finished or not len(self.curve[0]):
            return None
        return float(area_under_curve(self.returns_at(curve_frames(self.frames))))


def curve_frames(frames: int) -> Array:
    return np.linspace(0, frames, CURVE_POINTS + 1)[1:]


@dataclass(frozen=True)
class TrialRecords:
    """The trials of a report, and what is known about those that are missing, unreadable or failed."""

    trials: list[TrialRecord]
    problems: list[str]
    missing: list[str]
    """Planned trials of a sweep that have no directory yet."""
    unreadable: list[str]
    failed: dict[str, str]
    commands: list[str]

    @property
    def planned(self) -> int:
        """Number of trials that exist or are planned."""
        return len(self.trials) + len(self.missing) + len(self.unreadable)

    @cached_property
    def _finished(self) -> dict[tuple[str, AgentVariant], list[TrialRecord]]:
        groups: dict[tuple[str, AgentVariant], list[TrialRecord]] = {}
        for trial in self.trials:
            if trial.finished:
                groups.setdefault((trial.game_label, trial.agent), []).append(trial)
        return groups

    def sample(self, game: str, agent: AgentVariant, of: Callable[[TrialRecord], float | None]) -> dict[int, float]:
        """`of(trial)` for each finished trial of an agent on a game, by seed, without None."""
        found = {trial.seed: of(trial) for trial in self._finished.get((game, agent), [])}
        return {seed: value for seed, value in found.items() if value is not None}


def collect(directories: Sequence[Path]) -> TrialRecords:
    """The trials of several sweeps, archives or directories of runs; raises RunError if no trial can be read."""
    found = TrialRecords([], [], [], [], {}, [])
    seen: set[Any] = set()
    for directory in directories:
        with looking_into(directory):
            check_no_file(directory)
            if not directory.is_dir():
                raise RunError(f"{directory} is not a directory")
            paths = list(_run_paths(directory))
        planned = _read_planned_trials(directory, found)
        for path in paths:
            try:
                trial = read_trial(path, found.problems)
            except RunError as error:
                found.problems.append(str(error).replace(f"{path}/", f"{path.name}: ").replace(str(path), path.name))
                found.unreadable.append(archived_name(path))
                continue
            finally:
                planned.discard(archived_name(path))
            key = (trial.game, trial.protocol, trial.task, trial.seed, frozenset(trial.settings.items()))
            if key in seen:
                found.problems.append(f"{trial.name}: left out, duplicate of another trial (same game, settings and seed)")
                continue
            seen.add(key)
            found.trials.append(trial)
        found.missing.extend(sorted(planned))
    if not found.trials:
        where = ", ".join(map(str, directories))
        raise RunError(f"{where} holds no trial that can be read" + (f": {found.problems[0]}" if found.problems else ""))
    trials = with_labels(found.trials)
    rank = {agent: number for number, agent in enumerate(sort_agents(trial.agent for trial in trials))}
    trials.sort(key=lambda trial: (trial.game_label, rank[trial.agent], trial.seed))
    return replace(
        found, trials=trials, problems=[*found.problems, *unequal_settings_problems(trials), *code_version_problems(trials)]
    )


def read_trial(path: Path, problems: list[str]) -> TrialRecord:
    """The trial of a run directory or archive file; raises RunError if it is unusable, and adds lesser damage to `problems`."""
    if path.name.endswith(SUFFIX):
        found = read_archive(path)
        return _trial_record(archived_name(path), found.record, found.config, found.result, found.lines, problems)
    directory = RunDirectory.open(path)
    try:
        config = directory.read_config()
    except (RecursionError, OverflowError) as error:
        raise RunError(f"{directory.config_path} is damaged: {error}") from None
    lines, damaged = read_metrics(path / "metrics.jsonl")
    if damaged:
        problems.append(f"{path.name}: {damaged} lines of metrics.jsonl are damaged and left out")
    result: dict[str, Any] = {}
    if directory.result_path.exists():
        try:
            result = read_json(directory.result_path)
        except RunError as error:
            problems.append(f"{path.name}: {str(error).replace(f'{path}/', '')}; it counts as unfinished")
    return _trial_record(path.name, read_json(directory.config_path), config, result, lines, problems)


def _trial_record(
    name: str,
    record: dict[str, Any],
    config: TrainConfig,
    result: dict[str, Any],
    lines: list[dict[str, Any]],
    problems: list[str],
) -> TrialRecord:
    for text in (config.env.game, config.task, config.agent.torso):
        if len(text) > LONGEST_NAME or not text.isprintable():
            raise RunError(f"the config of {name} is damaged: {text[:20]!r} names nothing")
    if config.run.frames > MAX_FRAMES:
        raise RunError(f"the config of {name} is damaged: {config.run.frames} frames are too many")
    points = [(line["frame"], score) for line in lines if (score := _number(line.get("charts/episode_return"))) is not None]
    curve = np.array(points, dtype=float).reshape(-1, 2)
    evaluation = result.get("evaluation")
    evaluation = evaluation if isinstance(evaluation, dict) else {}
    score = _number(evaluation.get("mean") if evaluation else result.get("training_return"))
    played = _number(result.get("frames"))
    if score is not None and (played is None or played < config.run.frames):
        problems.append(f"{name}: its result is not of its last frame; it counts as unfinished")
        score = None
    elif result and score is None:
        problems.append(f"{name}: result.json holds no score; it counts as unfinished")
    return TrialRecord(
        name=name,
        game=config.env.game,
        task=config.task,
        seed=config.run.seed,
        protocol=applied_protocol(config.env.game, config.env.protocol),
        frames=config.run.frames,
        settings=learning_settings(config),
        eval_episodes=config.run.eval_episodes,
        curve=(curve[:, 0], curve[:, 1]),
        reached=lines[-1]["frame"] if lines else 0,
        score=score,
        evaluated_games=int(_number(evaluation.get("episodes")) or 0),
        wall_seconds=_number(result.get("wall_seconds")),
        frames_per_second=_number(result.get("frames_per_second")),
        origin={name: record.get(name) for name in ("commit", "versions", "machine")},
        commits=_commits(record),
    )


def _commits(record: dict[str, Any]) -> tuple[str, ...]:
    """Commits of the code that started the trial and of the code that resumed it, each once and in order."""
    resumed = record.get("resumed")
    parts = [record, *(part for part in (resumed if isinstance(resumed, list) else []) if isinstance(part, dict))]
    return tuple(dict.fromkeys(str(part.get("commit"))[:100] for part in parts))


def _read_planned_trials(directory: Path, found: TrialRecords) -> set[str]:
    """Names of the planned trials of the sweep in `directory`, if it is one; adds its command and failures to `found`."""
    if not sweep_file(directory).is_file():
        return set()
    try:
        record = read_sweep(directory)
        names = {str(name) for name in record["trials"]} if "trials" in record else _trial_names(record["sweep"])
        found.commands.append(str(record["command"]))
    except (RunError, KeyError, TypeError, ValueError) as error:
        file = sweep_file(directory).name
        found.problems.append(f"{directory.name}: {file} is damaged ({error}), so missing trials are not known")
        return set()
    if (directory / FAILURES_FILE).is_file():
        try:
            found.failed.update({str(k): str(v) for k, v in read_json(directory / FAILURES_FILE).items()})
        except RunError as error:
            found.problems.append(str(error).replace(f"{directory}/", ""))
    return names


def _trial_names(sweep: dict[str, Any]) -> set[str]:
    """Names of the trials of a sweep that was recorded by a version that did not list them."""
    seeds = range(int(sweep["first_seed"]), int(sweep["first_seed"]) + min(int(sweep["seeds"]), 10_000))
    games, tasks = ([str(name) for name in sweep[key]] for key in ("games", "tasks"))
    return {trial_name(game, task, seed) for game in games for task in tasks for seed in seeds}


def _run_paths(directory: Path) -> Iterator[Path]:
    """The directory itself if it is a run, else the run directories and archived trials in it."""
    if (directory / "config.json").exists():
        yield directory.absolute()
        return
    yield from sorted(path for path in directory.iterdir() if (path / "config.json").exists() or path.name.endswith(SUFFIX))


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) <= MAX_NUMBER else None
