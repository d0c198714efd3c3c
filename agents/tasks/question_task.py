"""Base of GVF and Reverse GVF tasks: question network, answer head, regression loss and metrics."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agents.batch import Batch
from agents.initialisation import HEAD_GAIN, orthogonal
from agents.metrics import mean, relative_error, spread
from agents.questions import QuestionNetwork
from agents.tasks.base import AuxiliaryTask, TaskInputs, TaskLoss
from configs.tasks import DiscoveryConfig, QuestionConfig
from envs.stream import EnvSpec


class QuestionTask(AuxiliaryTask):
    """The answer head regresses on returns of the cumulants and discounts from the question network.

    loss = sum_i (answer_i - target_i)^2 / (2 sqrt(d)), for d questions. With `scale_cumulants` cumulants are scaled by
    1 - gamma, so that the exact answers are weighted averages of cumulants, in (-1, 1).
    """

    Config: ClassVar[Any] = DiscoveryConfig
    learns_questions = True

    def __init__(self, config: QuestionConfig, spec: EnvSpec, num_features: int):
        super().__init__(config.answer_weight)
        self._lambda = config.answer_lambda
        self._asks_future = config.question_input == "future"
        self._scale_cumulants = config.scale_cumulants
        self._frames_per_step = spec.frames_per_step
        self._depth = spec.observation_shape[0] // spec.frame_shape[0]
        self._channels = spec.frame_shape[0]
        self.questions: QuestionNetwork = QuestionNetwork(
            config.question_torso, spec.observation_shape, config.num_questions, config.normalise_cumulants
        )
        self.answers = nn.Linear(num_features, config.num_questions)
        orthogonal(self.answers, HEAD_GAIN)

    @classmethod
    def build(cls, config: QuestionConfig, spec: EnvSpec, num_features: int) -> Self:
        return cls(config, spec, num_features)

    @abstractmethod
    def targets(self, cumulant: Tensor, discount: Tensor, answer: Tensor, batch: Batch) -> tuple[Tensor, slice, Tensor]:
        """Targets [T, B, d], the slice of the T + 1 observations that they belong to, and their mask [T, B].

        `cumulant`, `discount` and `answer` are [T + 1, B, d]; `answer` has no gradient.
        """

    def ask(self, pixels: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cumulants and discounts, each [T + 1, B, d]; the first call calibrates the question network."""
        if self._asks_future:
            pixels = future_observations(pixels, batch, self._depth)
        images = pixels.flatten(0, 1)
        if not self.questions.calibrated:
            self.questions.calibrate(images, self.ranks)
        cumulant, discount = self.questions(images, self.ranks)
        return cumulant.unflatten(0, pixels.shape[:2]), discount.unflatten(0, pixels.shape[:2])

    def predict(self, features: Tensor, batch: Batch) -> Tensor:
        """Answers [T + 1, B, d]."""
        return self.answers(features)

    def loss(self, prediction: Tensor, fixed: Tensor, inputs: TaskInputs) -> TaskLoss:
        cumulant, discount = inputs.questions
        target, which, mask = self.targets(cumulant, discount, fixed, inputs.batch)
        error = prediction[which] - target
        metrics = {
            "auxiliary/answer_error": relative_error(error[mask], target[mask]),
            "questions/cumulant_mean": mean(cumulant),
            "questions/cumulant_spread": spread(cumulant.flatten(0, 1)),
            "questions/discount_mean": mean(discount),
        }
        histograms = {
            "questions/discount": discount.detach(),
            "questions/horizon_frames": self._frames_per_step / (1 - discount.detach()),
        }
        return TaskLoss(0.5 * (error**2).sum(-1) / error.shape[-1] ** 0.5, mask, metrics, histograms)

    def pictures(self, prediction: Tensor, pixels: Tensor, inputs: TaskInputs) -> dict[str, np.ndarray]:
        from agents.tasks.pictures import draw_question, draw_questions

        frames = inputs.observations[:, :, -self._channels :]
        shown = int(frames.float().diff(dim=0).abs().flatten(2).mean((0, 2)).argmax())  # Where most happens.
        variance = prediction.flatten(0, 1).var(0)
        chosen = variance.argsort(descending=True)[:3]
        pixels = pixels.detach().requires_grad_()
        with torch.enable_grad():
            cumulant, discount = self.ask(pixels, inputs.batch)
            gradients = [torch.autograd.grad(cumulant[:, shown, q].sum(), pixels, retain_graph=True)[0] for q in chosen]
        saliency = torch.stack([gradient[:, shown, -self._channels :].abs().sum(1) for gradient in gradients])
        saliency = F.avg_pool2d(saliency, 5, stride=1, padding=2)  # Gradients of single pixels are noisy.
        frames, numbers = frames[:, shown], chosen.tolist()
        cumulant, discount, answer = (values[:, shown, chosen].detach() for values in (cumulant, discount, prediction))
        pictures = {"questions": draw_questions(frames, numbers, cumulant, discount, answer, saliency)}
        for i, number in enumerate(numbers):
            pictures[f"questions/{i + 1}"] = draw_question(
                frames, number, cumulant[:, i], discount[:, i], answer[:, i], saliency[i]
            )
        return pictures


def future_observations(observations: Tensor, batch: Batch, depth: int) -> Tensor:
    """For each observation [T + 1, B, ...] the one `depth` steps later, or the last one of its episode in the unroll."""
    time = len(observations)
    step = torch.arange(time, device=observations.device)[:, None].expand(time, observations.shape[1])
    continues = torch.cat([~batch.first[1:], torch.zeros_like(batch.first[:1])])
    ahead = step
    for _ in range(depth):
        ahead = ahead + continues.gather(0, ahead).long()
    columns = torch.arange(observations.shape[1], device=observations.device)
    return observations[ahead, columns]
