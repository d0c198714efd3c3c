"""The registry of auxiliary tasks."""

from __future__ import annotations

from agents.tasks.base import AuxiliaryTask, TaskInputs, TaskLoss
from agents.tasks.gvf import GVF
from agents.tasks.none import NoTask
from agents.tasks.pixel_control import PixelControl
from agents.tasks.random_questions import RandomGVF, RandomReverseGVF
from agents.tasks.reverse_gvf import ReverseGVF
from agents.tasks.reward_prediction import RewardPrediction
from configs.train import TaskName

TASKS: dict[TaskName, type[AuxiliaryTask]] = {
    "none": NoTask,
    "reward_prediction": RewardPrediction,
    "pixel_control": PixelControl,
    "gvf": GVF,
    "reverse_gvf": ReverseGVF,
    "random_gvf": RandomGVF,
    "random_reverse_gvf": RandomReverseGVF,
}

__all__ = ["TASKS", "AuxiliaryTask", "TaskInputs", "TaskLoss"]
