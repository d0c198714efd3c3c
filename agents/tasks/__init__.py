"""The auxiliary tasks by name."""

from __future__ import annotations

from agents.tasks.base import AuxiliaryTask, TaskLoss
from agents.tasks.none import NoTask

TASKS: dict[str, type[AuxiliaryTask]] = {"none": NoTask}

__all__ = ["TASKS", "AuxiliaryTask", "TaskLoss"]
