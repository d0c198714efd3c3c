"""Reward prediction, after Jaderberg et al. 2017: the immediate reward of each state-action pair.

UNREAL predicts the next reward from three frames of a skewed replay buffer; here the prediction is on-policy, from the features
of the current state, for the action taken.
"""

from __future__ import annotations

from torch import Tensor, nn

from agents.batch import Batch
from agents.initialisation import HEAD_GAIN, orthogonal
from agents.metrics import mean
from agents.tasks.base import AuxiliaryTask, TaskInputs, TaskLoss
from configs.tasks import RewardPredictionConfig
from envs.stream import EnvSpec

SIGNS = 3
"""Classes: negative, zero, positive."""


class RewardPrediction(AuxiliaryTask):
    """One head per action: logits of the sign of the reward (cross-entropy), or the clipped reward (half the squared error)."""

    Config = RewardPredictionConfig

    def __init__(self, weight: float, num_features: int, num_actions: int, classify: bool):
        super().__init__(weight)
        self._shape = (num_actions, SIGNS if classify else 1)
        self._classify = classify
        self.head = nn.Linear(num_features, num_actions * self._shape[1])
        orthogonal(self.head, HEAD_GAIN)

    @classmethod
    def build(cls, config: RewardPredictionConfig, spec: EnvSpec, num_features: int) -> RewardPrediction:
        classify = config.reward_prediction_target == "sign"
        return cls(config.reward_prediction_weight, num_features, spec.num_actions, classify)

    def predict(self, features: Tensor, batch: Batch) -> Tensor:
        """Logits [T + 1, B, A, 3] or, for regression, rewards [T + 1, B, A, 1]."""
        return self.head(features).unflatten(-1, self._shape)

    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        batch = inputs.batch
        width = self._shape[1]
        taken = prediction[:-1].gather(2, batch.action[..., None, None].expand(-1, -1, 1, width)).squeeze(2)
        if not self._classify:
            error = taken.squeeze(-1) - batch.reward.clamp(-1, 1)
            return TaskLoss(0.5 * error**2, batch.valid, {"auxiliary/absolute_error": mean(error.abs(), batch.valid)})
        target = batch.reward.sign().long() + 1
        log_likelihood = taken - taken.logsumexp(-1, keepdim=True)
        correct = (taken.argmax(-1) == target).float()
        rewarded = batch.valid & (target != 1)
        metrics = {
            "auxiliary/accuracy": mean(correct, batch.valid),
            "auxiliary/accuracy_on_rewards": mean(correct, rewarded),
        }
        return TaskLoss(-log_likelihood.gather(-1, target[..., None]).squeeze(-1), batch.valid, metrics)
