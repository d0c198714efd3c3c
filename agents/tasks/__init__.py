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
from configs.plugins import resolve
from configs.train import TrainConfig

TASKS: dict[str, type[AuxiliaryTask]] = {
    "none": NoTask,
    "reward_prediction": RewardPrediction,
    "pixel_control": PixelControl,
    "gvf": GVF,
    "reverse_gvf": ReverseGVF,
    "random_gvf": RandomGVF,
    "random_reverse_gvf": RandomReverseGVF,
}


def find_task(name: str) -> type[AuxiliaryTask]:
    """The class of a task that the user named; raises ConfigError if there is none."""
    return resolve(name, TASKS, "task")


def check_compiles(config: TrainConfig) -> None:
    """Raise ConfigError if the task needs second derivatives of a network that is to be compiled."""
    if config.learner.compile and find_task(config.task).learns_questions:
        raise ConfigError(f"--compile has no second derivatives, which --task {config.task} needs for its meta-gradient")


__all__ = ["TASKS", "AuxiliaryTask", "TaskInputs", "TaskLoss", "check_compiles", "find_task"]
