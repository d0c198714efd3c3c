"""What GVF and Reverse GVF tasks share: a question network, an answer head, and their metrics."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agents.batch import Batch
from agents.initialisation import HEAD_GAIN, orthogonal
from agents.questions import QuestionNetwork
from agents.tasks.base import AuxiliaryTask, TaskInputs, TaskLoss
from configs.train import TaskConfig
from envs.stream import EnvSpec

SMALLEST_VARIANCE = 1e-12
"""Below this a target is taken for constant."""


class QuestionTask(AuxiliaryTask):
    """The answer head regresses on returns of the cumulants that the question network emits."""

    learns_questions = True

    def __init__(self, config: TaskConfig, spec: EnvSpec, num_features: int):
        super().__init__(config.answer_weight)
        self._lambda = config.answer_lambda
        self._looks_ahead = config.question_input == "future"
        self._unit = config.unit_answers
        self._frames_per_step = spec.frames_per_step
        self._depth = spec.observation_shape[0] // spec.frame_shape[0]
        self._channels = spec.frame_shape[0]
        self.questions: QuestionNetwork = QuestionNetwork(
            config.question_torso, spec.observation_shape, config.num_questions, config.standard_cumulants
        )
        self.answers = nn.Linear(num_features, config.num_questions)
        orthogonal(self.answers, HEAD_GAIN)

    @classmethod
    def build(cls, config: TaskConfig, spec: EnvSpec, num_features: int) -> Self:
        return cls(config, spec, num_features)

    @abstractmethod
    def targets(self, cumulant: Tensor, discount: Tensor, answer: Tensor, batch: Batch) -> tuple[Tensor, slice, Tensor]:
        """The returns [T, B, d], the T of the T + 1 observations that they belong to, and which of them count [T, B].

        `cumulant`, `discount` and `answer` are [T + 1, B, d].
        """

    def ask(self, pixels: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cumulants and discounts, each [T + 1, B, d]."""
        if self._looks_ahead:
            pixels = future_observations(pixels, batch, self._depth)
        images = pixels.flatten(0, 1)
        if not self.questions.calibrated:
            self.questions.calibrate(images)
        cumulant, discount = self.questions(images)
        return cumulant.unflatten(0, pixels.shape[:2]), discount.unflatten(0, pixels.shape[:2])

    def predict(self, features: Tensor) -> Tensor:
        """[T + 1, B, d]"""
        return self.answers(features)

    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        cumulant, discount = inputs.questions
        target, which, mask = self.targets(cumulant, discount, fixed, inputs.batch)
        error = prediction[which] - target
        with torch.no_grad():
            metrics = {
                "auxiliary/answer_error": relative_error(error[mask], target[mask]),
                "questions/cumulant_mean": cumulant.mean(),
                "questions/cumulant_spread": cumulant.flatten(0, 1).std(0, correction=0).mean(),
                "questions/discount_mean": discount.mean(),
            }
        histograms = {
            "questions/discount": discount.detach(),
            "questions/horizon_frames": self._frames_per_step / (1 - discount.detach()),
        }
        return TaskLoss(0.5 * (error**2).sum(-1) / error.shape[-1] ** 0.5, mask, metrics, histograms)

    def pictures(self, prediction: Tensor, pixels: Tensor, inputs: TaskInputs) -> dict[str, np.ndarray]:
        from agents.tasks.pictures import draw_questions

        observations = inputs.observations
        variance = prediction.flatten(0, 1).var(0)
        chosen = variance.argsort(descending=True)[:4]
        pixels = pixels.detach().requires_grad_()
        with torch.enable_grad():
            cumulant, discount = self.ask(pixels, inputs.batch)
            looks = [torch.autograd.grad(cumulant[:, 0, q].sum(), pixels, retain_graph=True)[0] for q in chosen]
        saliency = torch.stack([look[:, 0, -self._channels :].abs().sum(1) for look in looks])
        saliency = F.avg_pool2d(saliency, 5, stride=1, padding=2)  # Single pixels say little.
        return {
            "questions": draw_questions(
                observations[:, 0, -self._channels :],
                chosen.tolist(),
                cumulant[:, 0, chosen].detach(),
                discount[:, 0, chosen].detach(),
                prediction[:, 0, chosen].detach(),
                saliency,
            )
        }


def future_observations(observations: Tensor, batch: Batch, depth: int) -> Tensor:
    """For each observation the one that holds the `depth` frames after it, or as many as its episode and the unroll have."""
    time = len(observations)
    step = torch.arange(time, device=observations.device)[:, None].expand(time, observations.shape[1])
    goes_on = torch.cat([~batch.first[1:], torch.zeros_like(batch.first[:1])])
    ahead = step
    for _ in range(depth):
        ahead = ahead + goes_on.gather(0, ahead).long()
    columns = torch.arange(observations.shape[1], device=observations.device)
    return observations[ahead, columns]


def relative_error(error: Tensor, target: Tensor) -> Tensor:
    """Mean squared error over the variance of the target, [N, d] -> mean over d; 1 is what a constant achieves.

    Targets that do not vary are left out; NaN if none does, as with N < 2.
    """
    if not len(target):
        return target.new_full((), torch.nan)  # `var` would warn.
    variance = target.var(0, correction=0)
    return torch.where(variance > SMALLEST_VARIANCE, (error**2).mean(0) / variance, torch.nan).nanmean()
