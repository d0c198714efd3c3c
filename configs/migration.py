"""Configs that earlier versions wrote, as this version would have written them.

A new format gets an entry in RENAMED (or a step of its own in `migrate`) and a directory made by the old code in
tests/old_formats.
"""

from __future__ import annotations

from typing import Any

from configs.errors import RunError
from configs.train import TrainConfig

FORMAT = 2
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
    if written_as == FORMAT:
        return values
    if isinstance(values, dict):
        return {RENAMED.get(name, name): migrate(value, written_as) for name, value in values.items()}
    return [migrate(value, written_as) for value in values] if isinstance(values, list) else values


def recorded_config(record: dict[str, Any], where: str) -> TrainConfig:
    """The config in the record of a run; raises RunError, KeyError, TypeError or ValueError where there is none."""
    values = migrate(record["config"], format_of(record, where))
    if isinstance(values, dict) and isinstance(values.get("learner"), dict):
        values["learner"].setdefault("learners", 1)  # Before there could be several.
    return TrainConfig.from_dict(values)
