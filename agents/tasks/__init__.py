"""The registry of auxiliary tasks."""

from __future__ import annotations

from agents.tasks.base import AuxiliaryTask, TaskInputs, TaskLoss
from agents.tasks.gvf import GVF
from agents.tasks.none import NoTask
from agents.tasks.pixel_control import PixelControl
from agents.tasks.random_questions import RandomGVF, RandomReverseGVF
from agents.tasks.reverse_gvf import ReverseGVF
from agents.tasks.reward_prediction import RewardPrediction
from configs.errors import ConfigError
from configs.train import TaskName, TrainConfig

TASKS: dict[TaskName, type[AuxiliaryTask]] = {
    "none": NoTask,
    "reward_prediction": RewardPrediction,
    "pixel_control": PixelControl,
    "gvf": GVF,
    "reverse_gvf": ReverseGVF,
    "random_gvf": RandomGVF,
    "random_reverse_gvf": RandomReverseGVF,
}

META_LEARNED = tuple(name for name, task in TASKS.items() if task.learns_questions)
"""Tasks whose questions are learnt by meta-gradient."""


def check_compiles(config: TrainConfig) -> None:
    """Raise ConfigError if the task needs second derivatives of a network that is to be compiled."""
    if config.learner.compile and config.task in META_LEARNED:
        raise ConfigError(f"--compile has no second derivatives, which --task {config.task} needs for its meta-gradient")


__all__ = ["META_LEARNED", "TASKS", "AuxiliaryTask", "TaskInputs", "TaskLoss", "check_compiles"]
