"""Settings as a dimension of a sweep: `--vary learning_rate=3e-4,6e-4`, or for one task `--vary gvf.answer_weight=0.03,0.1`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

from configs.errors import ConfigError
from configs.settings import facts, setting_text
from configs.train import AgentConfig, LearnerConfig, TaskConfig, TrainConfig, concerns

_KINDS: dict[str, Any] = {"agent": AgentConfig, "learner": LearnerConfig, "auxiliary": TaskConfig}
VARIABLE: dict[str, tuple[str, Any]] = {
    item.name: (group, get_type_hints(kind)[item.name])
    for group, kind in _KINDS.items()
    for item in fields(kind)
    if facts(kind)[item.name].role != "execution"
} | {"frames": ("run", int)}
"""Group and type of each setting that a sweep can vary: those of the agent, learner and tasks that alter learning."""


@dataclass(frozen=True)
class Variation:
    """The values of one setting."""

    setting: str
    values: tuple[Any, ...]
    task: str | None = None
    """The only task whose trials vary; None for all that read the setting."""

    @property
    def text(self) -> str:
        """As one would type it."""
        prefix = f"{self.task}." if self.task else ""
        return f"{prefix}{self.setting}={','.join(map(setting_text, self.values))}"

    def applies_to(self, task: str) -> bool:
        return self.task in (None, task) and concerns(self.setting, task)


def parse_variation(text: str, tasks: Sequence[str]) -> Variation:
    """Raises ConfigError, with the nearest name, where the text names no setting or task of the sweep or no fitting values."""
    left, equals, right = text.partition("=")
    task, dot, name = left.strip().rpartition(".")
    setting = name.replace("-", "_")
    if not equals or not right.strip():
        raise ConfigError(f"--vary {text}: a setting and its values are missing, such as learning_rate=3e-4,6e-4")
    if setting not in VARIABLE:
        if setting in facts(TrainConfig) and facts(TrainConfig)[setting].role == "execution":
            raise ConfigError(f"--vary {text}: {setting} does not alter what is learnt")
        raise ConfigError(f"--vary {text}: unknown setting '{name}'{_nearest(setting, VARIABLE)}")
    if dot and task not in tasks:
        raise ConfigError(f"--vary {text}: '{task}' is no task of --tasks{_nearest(task, tasks)}")
    values = tuple(_value(text, part.strip(), VARIABLE[setting][1]) for part in right.split(","))
    if len(set(values)) < len(values):
        raise ConfigError(f"--vary {text}: a value is named twice")
    found = Variation(setting, values, task or None)
    if tasks and not any(map(found.applies_to, tasks)):
        raise ConfigError(f"--vary {text}: {setting} makes no difference to {task or ', '.join(tasks)}")
    return found


def variants(variations: Iterable[Variation], task: str, optimiser: str = LearnerConfig.optimiser) -> list[dict[str, Any]]:
    """Every combination of the values that concern a task; one without any if none does.

    `optimiser` is that of trials which do not vary it; settings of another optimiser than a trial's are left out.
    """
    ours = [variation for variation in variations if variation.applies_to(task)]
    names = [variation.setting for variation in ours]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--vary gives {name} twice for {task}")
    found: list[dict[str, Any]] = []
    for values in product(*(variation.values for variation in ours)):
        settings = dict(zip(names, values, strict=True))
        used = settings.get("optimiser", optimiser)
        settings = {name: v for name, v in settings.items() if facts(TrainConfig)[name].optimiser in (None, used)}
        if settings not in found:
            found.append(settings)
    return found


def with_settings(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """The config with some of the settings of `VARIABLE` changed; raises ConfigError where one cannot be so."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        groups.setdefault(VARIABLE[name][0], {})[name] = value
    changed: dict[str, Any] = {group: replace(getattr(config, group), **values) for group, values in groups.items()}
    return replace(config, **changed)


def settings_name(settings: Mapping[str, Any]) -> str:
    """For the name of a directory."""
    return "-".join(f"{name}={setting_text(value)}" for name, value in settings.items())


def _value(text: str, part: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        if part not in get_args(kind):
            raise ConfigError(f"--vary {text}: '{part}' is none of {', '.join(get_args(kind))}")
        return part
    if kind is bool:
        if part.lower() not in ("true", "false"):
            raise ConfigError(f"--vary {text}: '{part}' is neither true nor false")
        return part.lower() == "true"
    try:
        return kind(part)
    except ValueError:
        raise ConfigError(f"--vary {text}: '{part}' is not {'a whole' if kind is int else 'a'} number") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
