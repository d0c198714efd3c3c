"""Settings that were given but would have no effect: they are refused, since whoever gave them expects one.

Only the command line asks: the config of an old run may hold such settings and stays readable.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from configs.errors import ConfigError
from configs.train import SETTINGS_OF_RAY_POOL, SETTINGS_OF_TASKS, TaskName


def changed_settings(config: Any, default: Any) -> set[str]:
    """Names of the settings in which two configs of one kind differ."""
    changed = set()
    for item in fields(config):
        ours, theirs = getattr(config, item.name), getattr(default, item.name)
        if is_dataclass(ours):
            changed |= changed_settings(ours, theirs)
        elif ours != theirs:
            changed.add(item.name)
    return changed


def check_tasks_use(given: Collection[str], tasks: Sequence[TaskName]) -> None:
    """Raises ConfigError for a setting of auxiliary tasks that none of `tasks` uses."""
    for name, users in SETTINGS_OF_TASKS.items():
        if name in given and not set(users) & set(tasks):
            raise ConfigError(f"{_flag(name)} has no effect with task {' or '.join(tasks)}; it is for {', '.join(users)}")


def check_pool_uses(given: Collection[str], pool: str, chosen_by: str) -> None:
    """Raises ConfigError for a setting of the Ray pool where the pool is serial; `chosen_by` is the flag that made it so."""
    for name in SETTINGS_OF_RAY_POOL:
        if name in given and pool == "serial":
            raise ConfigError(f"{_flag(name)} has no effect with {chosen_by}, which plays and learns in one process")


def check_games_use(given: Collection[str], games: Sequence[str], atari_games: Collection[str]) -> None:
    """Raises ConfigError for rules of Atari where none of `games` is an Atari game."""
    if "protocol" in given and not set(games) & set(atari_games):
        raise ConfigError(f"--protocol has no effect on {', '.join(games)}; it is for Atari games")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
