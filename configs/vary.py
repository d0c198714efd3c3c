"""Settings as a dimension of a sweep: `--vary learning_rate=3e-4,6e-4`, or for one task `--vary gvf.answer_weight=0.03,0.1`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

from configs.errors import ConfigError
from configs.plugins import nearest
from configs.settings import facts, setting_text
from configs.tasks import BUILT_IN_TASKS, task_type
from configs.train import AgentConfig, LearnerConfig, TrainConfig

_KINDS: dict[str, Any] = {"agent": AgentConfig, "learner": LearnerConfig}
VARIABLE: dict[str, tuple[str, Any]] = {
    item.name: (group, get_type_hints(kind)[item.name])
    for group, kind in _KINDS.items()
    for item in fields(kind)
    if facts(kind)[item.name].role != "execution"
} | {"frames": ("run", int)}
"""Group and type of each setting that a sweep can vary besides those of tasks: agent's and learner's that alter learning."""


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
        return self.task in (None, task) and (self.setting in VARIABLE or self.setting in task_settings([task]))


def task_settings(tasks: Iterable[str]) -> dict[str, Any]:
    """Type of each setting of the tasks that alters learning."""
    hints = [(kind, get_type_hints(kind)) for kind in (task_type(task).config for task in tasks)]
    return {name: hint for kind, of in hints for name, hint in of.items() if facts(kind)[name].role != "execution"}


def parse_variation(text: str, tasks: Sequence[str]) -> Variation:
    """Raises ConfigError, with the nearest name, where the text names no setting or task of the sweep or no fitting values."""
    left, equals, right = text.partition("=")
    task, dot, name = left.strip().rpartition(".")
    setting = name.replace("-", "_")
    if not equals or not right.strip():
        raise ConfigError(f"--vary {text}: a setting and its values are missing, such as learning_rate=3e-4,6e-4")
    if dot and task not in tasks:
        raise ConfigError(f"--vary {text}: '{task}' is no task of --tasks{nearest(task, tasks)}")
    known = {name: hint for name, (_, hint) in VARIABLE.items()} | task_settings([task] if dot else tasks)
    if setting not in known:
        if setting in _of_execution(tasks):
            raise ConfigError(f"--vary {text}: {setting} does not alter what is learnt")
        if setting in task_settings([*BUILT_IN_TASKS, *tasks]):
            raise ConfigError(f"--vary {text}: {setting} makes no difference to {task or ', '.join(tasks)}")
        raise ConfigError(f"--vary {text}: unknown setting '{name}'{nearest(setting, known)}")
    values = tuple(_value(text, part.strip(), known[setting]) for part in right.split(","))
    if len(set(values)) < len(values):
        raise ConfigError(f"--vary {text}: a value is named twice")
    return Variation(setting, values, task or None)


def _of_execution(tasks: Iterable[str]) -> set[str]:
    kinds = [TrainConfig, *(task_type(task).config for task in tasks)]
    return {name for kind in kinds for name, setting in facts(kind).items() if setting.role == "execution"}


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
        common = facts(TrainConfig)
        settings = {name: v for name, v in settings.items() if name not in common or common[name].optimiser in (None, used)}
        if settings not in found:
            found.append(settings)
    return found


def with_settings(config: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """The config with some of the settings of `VARIABLE` or of its task changed; raises ConfigError where one cannot be so."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        groups.setdefault(VARIABLE[name][0] if name in VARIABLE else "auxiliary", {})[name] = value
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
