"""Configs that earlier versions wrote, as this version would have written them.

A new format gets an entry in RENAMED (or a step of its own in `migrate`) and a directory made by the old code in
tests/old_formats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from configs.errors import RunError
from configs.settings import facts
from configs.tasks import BUILT_IN_TASKS
from configs.train import TrainConfig

FORMAT = 3
"""Of config.json, sweep.json, archived trials and the settings of a study; a file that states none has format 1."""
RENAMED = {
    "core_size": "lstm_size",
    "trace_lambda": "vtrace_lambda",
    "unit_answers": "scale_cumulants",
    "standard_cumulants": "normalise_cumulants",
}
"""Settings of format 1 that format 2 names otherwise."""


def format_of(record: Any, where: str) -> int:
    """The format of a record read from a file; raises RunError if this version does not know it."""
    found = record.get("format", 1) if isinstance(record, dict) else 1
    if type(found) is not int or found < 1:
        raise RunError(f"{where} is damaged: its format cannot be {str(found)[:50]!r}")
    if found > FORMAT:
        raise RunError(f"{where} has format {found}, which a newer version wrote; this one reads formats up to {FORMAT}")
    return found


def migrate(values: Any, written_as: int) -> Any:
    """Nested tables and lists of settings with this version's names."""
    if written_as > 1:
        return values
    if isinstance(values, dict):
        return {RENAMED.get(name, name): migrate(value, written_as) for name, value in values.items()}
    return [migrate(value, written_as) for value in values] if isinstance(values, list) else values


def recorded_config(record: dict[str, Any], where: str) -> TrainConfig:
    """The config in the record of a run; raises RunError, KeyError, TypeError or ValueError where there is none."""
    written_as = format_of(record, where)
    values = migrate(record["config"], written_as)
    if isinstance(values, dict) and isinstance(values.get("learner"), dict):
        values["learner"].setdefault("learners", 1)  # Before there could be several.
    if written_as < 3 and isinstance(values, dict):
        values = _with_settings_of_tasks(values, lambda flat: _settings_of(values.get("task"), flat))
    if isinstance(values, dict):
        _without_clip(values.get("auxiliary"))
    return TrainConfig.from_dict(values)


def recorded_sweep(values: Any, written_as: int) -> Any:
    """The identity of a sweep that an earlier version recorded."""
    values = migrate(values, written_as)
    if written_as < 3 and isinstance(values, dict) and isinstance(tasks := values.get("tasks"), list):
        values = _with_settings_of_tasks(values, lambda flat: {str(task): _settings_of(task, flat) for task in tasks})
    if isinstance(values, dict) and isinstance(tables := values.get("auxiliary"), dict):
        for table in tables.values():
            _without_clip(table)
    return values


def _without_clip(settings: Any) -> None:
    """Complete the settings of discovery that were recorded before the meta-gradient could be clipped."""
    if isinstance(settings, dict) and "meta_interval" in settings:
        settings.setdefault("meta_clip_norm", 0.0)


def _with_settings_of_tasks(values: dict[str, Any], split: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Up to format 2 one table held the settings of all tasks, and `stop_main_gradient`, which is now the learner's."""
    flat, learner = values.get("auxiliary", {}), values.get("learner", {})
    if not isinstance(flat, dict) or not isinstance(learner, dict):
        return values
    stopped = {name: value for name, value in flat.items() if name == "stop_main_gradient"}
    rest = {name: value for name, value in flat.items() if name not in stopped}
    return values | {"auxiliary": split(rest), "learner": learner | stopped}


def _settings_of(task: Any, flat: dict[str, Any]) -> dict[str, Any]:
    """The settings of one task, and any that no task had, which a config then refuses."""
    others = {name for other, kind in BUILT_IN_TASKS.items() if other != task for name in facts(kind.config)}
    own = facts(BUILT_IN_TASKS[task].config) if isinstance(task, str) and task in BUILT_IN_TASKS else {}
    return {name: value for name, value in flat.items() if name in own or name not in others}
