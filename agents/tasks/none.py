"""The plain agent: the task that asks for nothing."""

from __future__ import annotations

import torch

from agents.agent import Unroll
from agents.batch import Batch
from agents.tasks.base import AuxiliaryTask, TaskLoss


class NoTask(AuxiliaryTask):
    def forward(self, unroll: Unroll, batch: Batch) -> TaskLoss:
        return TaskLoss(torch.zeros_like(batch.reward), batch.valid, {})
