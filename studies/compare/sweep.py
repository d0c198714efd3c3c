"""The directory of a sweep: its trials and the status of each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from configs.compare import CompareConfig
from configs.errors import CheckpointError, ConfigError, RunError
from configs.migration import FORMAT, format_of, recorded_sweep
from configs.settings import facts
from configs.tasks import task_type
from configs.train import TrainConfig, without_execution
from configs.vary import settings_name
from envs.game_sets import expand_games
from studies.compare.archive import (
    IMAGE,
    ArchivedTrial,
    archive_path,
    read_archive,
    restore,
    write_archive,
    write_questions_image,
)
from training.storage.files import explain, parse_json, read_bounded
from training.storage.metrics_file import read_metrics
from training.storage.run_directory import LOCK, RunDirectory, check_no_file, looking_into, provenance
from training.storage.run_lock import locked

SWEEP_FILE = "sweep.json"
EARLIER_NAME = "grid"
"""Earlier versions wrote grid.json, with the settings under "grid"; such directories are read and continued as they are."""
FAILURES_FILE = "failures.json"
OVERLAY_DIRECTORY = "overlay"
MAX_JSON_BYTES = 16 << 20
MAX_NAME_BYTES = 255
"""Longest name of a directory on common file systems."""


class TrialStatus(Enum):
    NEW = "new"
    BEGUN = "begun"
    """Has no checkpoint yet, so it must start again."""
    INTERRUPTED = "interrupted"
    FINISHED = "finished"


@dataclass(frozen=True)
class Trial:
    name: str
    config: TrainConfig
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings that the sweep varies for the trial's task."""

    @property
    def agent(self) -> str:
        """Name of the task and the varied settings."""
        return agent_name(self.config.task, self.settings)

    @property
    def path(self) -> Path:
        return self.config.run_path

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.path)

    def status(self) -> TrialStatus:
        """The status on disk; raises RunError or CheckpointError if the run directory is damaged or not this trial's."""
        check_no_file(self.path)
        if not holds_anything(self.path):
            return TrialStatus.NEW
        self.check_recorded(RunDirectory.open(self.path).read_config(), self.path)
        if self.directory.result_path.exists():
            frames = read_json(self.directory.result_path).get("frames")
            if not isinstance(frames, int):
                raise RunError(f"{self.directory.result_path} is damaged: it has no frames")
            if frames >= self.config.run.frames:
                return TrialStatus.FINISHED
        return TrialStatus.BEGUN if self.checkpoint_frame() is None else TrialStatus.INTERRUPTED

    def check_recorded(self, recorded: TrainConfig, path: Path) -> None:
        """Raise RunError unless the config found at `path` is this trial's."""
        try:
            self.config.check_resumes(recorded)
        except ConfigError as error:
            raise RunError(f"{path} is not part of this sweep: {error}") from None
        if recorded.run.frames != self.config.run.frames:
            raise RunError(f"{path} is not part of this sweep: it was started with --frames {recorded.run.frames}")

    def archived(self, archive: Path) -> ArchivedTrial | None:
        """The trial in an archive, or None; raises RunError if it is damaged or not this trial's."""
        path = archive_path(archive, self.name)
        if not path.exists():
            return None
        found = read_archive(path)
        self.check_recorded(found.config, path)
        return found

    def checkpoint_frame(self) -> int | None:
        """Frame of the newest checkpoint, or None; raises CheckpointError if there are checkpoints but none can be read."""
        checkpoints = self.directory.checkpoints(self.config.run.keep_checkpoints)
        if not checkpoints.list():
            return None
        try:
            return int(checkpoints.newest().tensors["learner.counters"][0])
        except KeyError:
            raise CheckpointError(f"the newest checkpoint of {self.path} does not fit") from None

    def clear(self) -> None:
        """Empty the run directory of a trial that begins anew; its config goes last, so that a kill leaves a trial."""
        for entry in sorted(self.path.iterdir(), key=lambda entry: entry == self.directory.config_path):
            if entry.name == LOCK:
                continue
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


class Sweep:
    """Trials of all games, tasks, settings and seeds. Seeds vary slowest: an interrupted sweep has all tasks and games."""

    def __init__(self, config: CompareConfig):
        self.config = config
        self.out = Path(config.out)
        self.archive = Path(config.archive) if config.archive else None
        self.games = expand_games(config.games)
        self.tasks = tuple(dict.fromkeys(config.tasks))
        self.seeds = tuple(range(config.first_seed, config.first_seed + config.seeds))
        self.trials = [
            self._trial(game, task, seed, settings)
            for seed in self.seeds
            for game in self.games
            for task in self.tasks
            for settings in config.variants(task)
        ]
        self.agents = tuple(dict.fromkeys(trial.agent for trial in self.trials))
        longest = max((trial.name for trial in self.trials), key=len, default="")
        if len(longest.encode()) > MAX_NAME_BYTES:
            raise ConfigError(f"{longest} is too long for the name of a directory: vary fewer settings in one sweep")

    def _trial(self, game: str, task: str, seed: int, settings: dict[str, Any]) -> Trial:
        name = trial_name(game, agent_name(task, settings), seed)
        config = self.config.trial(game, task, seed, settings)
        return Trial(name, config.with_run(run_dir=str(self.out / name)), settings)

    def identity(self) -> dict[str, Any]:
        """The settings in which two sweeps may not differ if they share a directory."""
        return self.config.identity() | {"games": list(self.games), "tasks": list(self.tasks)}

    def statuses(self) -> dict[str, TrialStatus]:
        """The status of each trial; raises RunError where a directory holds something else. Writes nothing."""
        for directory, flag in self._directories():
            self._check_identity(directory, flag)
        return {trial.name: self._status(trial) for trial in self.trials}

    def _status(self, trial: Trial) -> TrialStatus:
        status = trial.status()
        finished = status is TrialStatus.FINISHED
        archived = not finished and self.archive is not None and trial.archived(self.archive) is not None
        return TrialStatus.FINISHED if archived else status

    def _directories(self) -> list[tuple[Path, str]]:
        """The directories of this sweep, each with its flag."""
        return [(self.out, "--out")] + ([] if self.archive is None else [(self.archive, "--archive")])

    def _check_identity(self, directory: Path, flag: str) -> None:
        """Raise RunError if the directory holds anything but this sweep."""
        with looking_into(directory):
            check_no_file(directory)
            if not holds_anything(directory):
                return
            if not sweep_file(directory).is_file():
                raise RunError(f"{directory} is not empty and not a sweep; choose another {flag}")
        recorded = read_sweep(directory)["sweep"]
        if isinstance(recorded, dict):
            recorded = _as_recorded_now(recorded, self.tasks)
        if recorded != self.identity():
            difference = _difference(recorded, self.identity())
            raise RunError(f"{directory} holds another sweep ({difference}); choose another {flag}")

    @contextmanager
    def claimed(self, command: str) -> Iterator[None]:
        """Lock the directory of the sweep, record the sweep in it and synchronise it with the archive."""
        with locked(self.out):
            names = [trial.name for trial in self.trials]
            record = {"format": FORMAT, "command": command, "sweep": self.identity(), "trials": names, **provenance()}
            for directory, _ in self._directories():
                try:
                    if not sweep_file(directory).exists():
                        directory.mkdir(parents=True, exist_ok=True)
                        RunDirectory.write_json(directory / SWEEP_FILE, record)
                except OSError as error:
                    raise RunError(f"cannot write to {directory}: {explain(error)}") from None
            if self.archive is not None:
                for trial in self.trials:
                    self._restore(trial, self.archive)
                    self.keep(trial)
            yield

    def _restore(self, trial: Trial, archive: Path) -> None:
        """Make the run directory of a trial that is finished in the archive only."""
        status = trial.status()
        if status is not TrialStatus.FINISHED and (found := trial.archived(archive)) is not None:
            if status is not TrialStatus.NEW:
                trial.clear()
            restore(found, trial.directory)

    def keep(self, trial: Trial) -> None:
        """Write a finished trial to the archive, if there is an archive and it does not have the trial yet.

        The image of the questions is kept for the first seed only.
        """
        if self.archive is None or archive_path(self.archive, trial.name).exists():
            return
        if trial.status() is TrialStatus.FINISHED:
            record, result = (read_json(path) for path in (trial.directory.config_path, trial.directory.result_path))
            lines, _ = read_metrics(trial.directory.metrics_path)
            if trial.config.run.seed == self.trials[0].config.run.seed:
                write_questions_image(trial.path, self.archive / f"{trial.name}.{IMAGE}.png")
            write_archive(archive_path(self.archive, trial.name), record, result, lines)

    def write_failures(self, failures: dict[str, str]) -> None:
        """Record the trials that failed in all attempts, with the cause, for the report."""
        path = self.out / FAILURES_FILE
        try:
            if failures:
                RunDirectory.write_json(path, dict(sorted(failures.items())))
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise RunError(f"cannot write {path}: {explain(error)}") from None


def agent_name(task: str, settings: Mapping[str, Any]) -> str:
    return "-".join(filter(None, [task, settings_name(settings)]))


def trial_name(game: str, agent: str, seed: int) -> str:
    return f"{game.replace('gym:', '').replace('/', '-')}-{agent}-seed{seed}"


def holds_anything(directory: Path) -> bool:
    """Whether the directory has entries that are not hidden; interrupted writes leave hidden files."""
    return directory.is_dir() and any(not entry.name.startswith(".") for entry in directory.iterdir())


def sweep_file(directory: Path) -> Path:
    """The file that records the sweep of a directory: sweep.json unless only an earlier version's file is there."""
    path, earlier = directory / SWEEP_FILE, directory / f"{EARLIER_NAME}.json"
    return earlier if os.path.isfile(earlier) and not os.path.exists(path) else path


def read_sweep(directory: Path) -> dict[str, Any]:
    """The record of a sweep: its command, its settings under "sweep" and the names of its trials."""
    path = sweep_file(directory)
    record = read_json(path)
    named = {"sweep" if key == EARLIER_NAME else key: value for key, value in record.items()}
    return named | {"sweep": recorded_sweep(named.get("sweep"), format_of(record, str(path)))}


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; raises RunError if there is none."""
    try:
        values = parse_json(read_bounded(path, MAX_JSON_BYTES))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    if not isinstance(values, dict):
        raise RunError(f"{path} is damaged: it is not a JSON object")
    return values


def _as_recorded_now(recorded: dict[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """The identity of a sweep of `tasks` as this version would have recorded it.

    Earlier versions also recorded settings of execution, which are dropped, and lacked newer ones, which get their defaults.
    """
    defaults = CompareConfig(tasks=tuple(tasks)).identity()
    kept = without_execution(recorded)
    if isinstance(of_tasks := kept.get("auxiliary"), dict):
        for task in [task for task in tasks if isinstance(of_tasks.get(task), dict)]:
            known = facts(task_type(task).config)
            of_tasks[task] = {n: v for n, v in of_tasks[task].items() if n not in known or known[n].role != "execution"}
    return _with_defaults(kept, {name: group for name, group in defaults.items() if isinstance(group, dict)})


def _with_defaults(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The values, with defaults for what their nested tables lack."""
    nested = {name: group for name, group in defaults.items() if isinstance(group, dict) and isinstance(values.get(name), dict)}
    return values | {name: _with_defaults(group | values[name], group) for name, group in nested.items()}


def _difference(recorded: Any, ours: dict[str, Any]) -> str:
    """The first setting in which two sweeps differ, as text."""
    if not isinstance(recorded, dict):
        return "its settings cannot be read"
    for name in dict.fromkeys([*ours, *recorded]):
        value, theirs = ours.get(name), recorded.get(name)
        if theirs == value:
            continue
        if isinstance(value, dict) and isinstance(theirs, dict):
            return _difference(theirs, value)
        flag = name.replace("_", "-")
        shown = [" ".join(map(str, v)) if isinstance(v, list) else "nothing" if v is None else v for v in (theirs, value)]
        return f"--{flag} {shown[0]}, not {shown[1]}"
    return "of another version"
