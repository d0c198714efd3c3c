"""The plain IMPALA agent, as the task whose loss is 0."""

from __future__ import annotations

from torch import Tensor

from agents.batch import Batch
from agents.tasks.base import AuxiliaryTask, TaskInputs, TaskLoss
from configs.tasks import NoConfig
from envs.stream import EnvSpec


class NoTask(AuxiliaryTask):
    @classmethod
    def build(cls, config: NoConfig, spec: EnvSpec, num_features: int) -> NoTask:
        return cls(weight=0.0)

    def predict(self, features: Tensor, batch: Batch) -> Tensor:
        return features[..., :0]

    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        return TaskLoss(prediction[:-1].sum(-1), inputs.batch.valid)
