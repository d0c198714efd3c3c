"""Settings that were given but would have no effect: they are refused, since whoever gave them expects one.

Only the command line asks: the config of an old run may hold such settings and stays readable.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from configs.errors import ConfigError
from configs.settings import facts, flag, flatten
from configs.train import TaskName, TrainConfig


def changed_settings(config: Any, default: Any) -> set[str]:
    """Names of the settings in which two configs of one kind differ."""
    return {path[-1] for (path, ours), (_, theirs) in zip(flatten(config), flatten(default), strict=True) if ours != theirs}


def check_tasks_use(given: Collection[str], tasks: Sequence[TaskName]) -> None:
    """Raises ConfigError for a setting of auxiliary tasks that none of `tasks` uses."""
    for name, setting in facts(TrainConfig).items():
        if name in given and setting.tasks is not None and not set(setting.tasks) & set(tasks):
            users = ", ".join(setting.tasks)
            raise ConfigError(f"{flag(name)} has no effect with task {' or '.join(tasks)}; it is for {users}")


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
