"""Facts about settings, declared where a setting is: `unroll: Annotated[int, Setting(positive=True, most=2**16)] = 20`.

Validation, `--resume`, the identity of a sweep and the report's warnings read them from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from configs.errors import ConfigError

LONGEST_QUOTE = 200
"""Characters of a file's nonsense that an error repeats."""
LARGEST = 2**63 - 1
"""Integer that a setting may be: what 64 bits hold."""


@dataclass(frozen=True)
class Setting:
    """Facts about one setting."""

    positive: bool = False
    most: float = math.inf
    below: float = math.inf
    """Exclusive upper bound."""
    role: Literal["learning", "execution", "measurement", "identity"] = "learning"
    """learning: alters what is learnt. execution: how and where a run is executed. measurement: what is recorded of a run.
    identity: what a trial is named by."""
    may_extend: bool = False
    """Whether it may change on --resume although it alters what is learnt."""
    only_if: Literal["", "trains_torso", "draws"] = ""
    """What a task must do to use it (`configs.tasks.TaskType`); empty if it does not depend on the task."""
    optimiser: str | None = None
    """The only optimiser that uses it; None if all do."""
    ray_pool_only: bool = False
    """Whether the serial pool ignores it."""

    @property
    def may_change_on_resume(self) -> bool:
        return self.role in ("execution", "measurement") or self.may_extend

    def check(self, flag: str, value: float) -> None:
        """Raise ConfigError if the value is not finite or out of bounds; no setting may be negative."""
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ConfigError(f"{flag} must be at most {LARGEST}, not a number of {len(str(abs(value)))} digits")
        if not math.isfinite(value):
            raise ConfigError(f"{flag} must be a finite number, not {value}")
        if self.positive and value <= 0:
            raise ConfigError(f"{flag} must be positive, not {value}")
        if value < 0:
            raise ConfigError(f"{flag} must be at least 0, not {value}")
        if value > self.most:
            raise ConfigError(f"{flag} must be at most {self.most}, not {value}")
        if value >= self.below:
            raise ConfigError(f"{flag} must be below {self.below:g}, not {value}")


POSITIVE = Setting(positive=True)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def facts(kind: Any) -> dict[str, Setting]:
    """Facts about every setting in a tree of config dataclasses, by the setting's name, which is unique in the tree."""
    return _facts(kind)  # The cache's own type accepts no dataclass type.


@cache
def _facts(kind: Any) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if hint is Any or get_origin(hint) is ClassVar:  # Settings of a task, which are not the same in all configs.
            continue
        ours = facts(hint) if is_dataclass(hint) else {name: _declared(hint)}
        if twice := found.keys() & ours.keys():
            raise TypeError(f"{kind.__name__} has two settings called {', '.join(twice)}")
        found |= ours
    return found


def _declared(hint: Any) -> Setting:
    declared = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Setting)]
    return declared[-1] if declared else Setting()


def check_bounds(config: Any) -> None:
    """Raise ConfigError for a number in the config that is not finite or out of its bounds."""
    known = facts(type(config))
    for name, value in ((item.name, getattr(config, item.name)) for item in fields(config)):
        if is_dataclass(value):
            check_bounds(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            known[name].check(flag(name), value)


def flatten(config: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of every setting of a config or of a nested dict of settings."""
    if isinstance(config, dict):
        items = list(config.items())
    else:
        items = [(item.name, getattr(config, item.name)) for item in fields(config)]
    for name, value in items:
        if isinstance(value, dict) or is_dataclass(value):
            yield from flatten(value, (*path, name))
        else:
            yield (*path, name), value


def build(kind: Any, values: Any, where: str) -> Any:
    """A config from a nested dict of JSON values; raises ConfigError where the values do not fit."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where} is not a table of settings")
    hints = get_type_hints(kind)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ConfigError(f"{where} has unknown settings: {', '.join(map(repr, unknown))[:LONGEST_QUOTE]}")
    arguments = {}
    for name, value in values.items():
        hint = hints[name]
        if hint is Any:
            arguments[name] = value
        elif is_dataclass(hint):
            arguments[name] = build(hint, value, f"{where}.{name}")
        elif _fits(value, hint):
            arguments[name] = value
        else:
            raise ConfigError(f"{where}.{name} cannot be {repr(value)[:LONGEST_QUOTE]}")
    return kind(**arguments)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    return type(value) is hint or (hint is float and type(value) is int)


def setting_text(value: Any) -> str:
    """A setting's value as a user would type it, and short: 3e-4, 0.1, 10_000_000, true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        digits, exponent = f"{Decimal(repr(value)).normalize():e}".split("e")
        return min(repr(value).removesuffix(".0"), f"{digits}e{int(exponent)}", key=len)
    return str(value)
