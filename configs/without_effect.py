"""Settings that were given but would have no effect: they are refused, since whoever gave them expects one.

Only the command line asks: the config of an old run may hold such settings and stays readable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from configs.errors import ConfigError
from configs.settings import facts, flag, flatten
from configs.tasks import BUILT_IN_TASKS, task_type
from configs.train import TrainConfig


def changed_settings(config: Any, default: Any) -> set[str]:
    """Names of the settings in which two configs of one kind differ."""
    return {path[-1] for (path, ours), (_, theirs) in zip(flatten(config), flatten(default), strict=True) if ours != theirs}


def named_settings(words: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """For each flag among the words of a command line the settings that it may be for: --no-x may be for `no_x` or `x`."""
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0].removeprefix("--").replace("-", "_")
            yield tuple(dict.fromkeys((name, name.removeprefix("no_"))))


def check_tasks_have(words: Iterable[str], tasks: Sequence[str]) -> None:
    """Raises ConfigError for a flag that only other tasks have; `words` are those that the command itself does not know."""
    types = [task_type(task) for task in tasks]
    for names in named_settings(words):
        for name in names:
            users = [task for task, kind in BUILT_IN_TASKS.items() if kind.has(name)]
            if users and not any(kind.has(name) for kind in types):
                _refuse(name, tasks, users)


def check_tasks_use(given: Collection[str], tasks: Sequence[str]) -> None:
    """Raises ConfigError for a setting that has no effect with any of `tasks`."""
    for name, setting in facts(TrainConfig).items():
        if name in given and setting.only_if and not any(getattr(task_type(task), setting.only_if) for task in tasks):
            _refuse(name, tasks, [task for task, kind in BUILT_IN_TASKS.items() if getattr(kind, setting.only_if)])


def _refuse(name: str, tasks: Sequence[str], users: Sequence[str]) -> None:
    raise ConfigError(f"{flag(name)} has no effect with task {' or '.join(tasks)}; it is for {', '.join(users)}")


def check_optimisers_use(given: Collection[str], optimisers: Sequence[str]) -> None:
    """Raises ConfigError for a setting of an optimiser that is none of `optimisers`."""
    for name, setting in facts(TrainConfig).items():
        if name in given and setting.optimiser is not None and setting.optimiser not in optimisers:
            raise ConfigError(
                f"{flag(name)} has no effect with --optimiser {' or '.join(optimisers)}; it is for {setting.optimiser}"
            )


def check_pool_uses(given: Collection[str], pool: str, chosen_by: str) -> None:
    """Raises ConfigError for a setting of the Ray pool where the pool is serial; `chosen_by` is the flag that made it so."""
    for name, setting in facts(TrainConfig).items():
        if name in given and setting.ray_pool_only and pool == "serial":
            raise ConfigError(f"{flag(name)} has no effect with {chosen_by}, which plays and learns in one process")


def check_games_use(given: Collection[str], games: Sequence[str], atari_games: Collection[str]) -> None:
    """Raises ConfigError for rules of Atari where none of `games` is an Atari game."""
    if "protocol" in given and not set(games) & set(atari_games):
        raise ConfigError(f"--protocol has no effect on {', '.join(games)}; it is for Atari games")
