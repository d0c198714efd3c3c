"""The objective of theta on a batch, L_RL + L_aux, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from agents.agent import Agent, Unroll
from agents.batch import Batch
from agents.tasks import AuxiliaryTask, TaskInputs, TaskLoss
from configs.plugins import errors_named
from configs.train import LearnerConfig
from learners.losses import ImpalaLoss, impala_loss


class Network(nn.Module):
    """Everything that theta parametrises: the agent and the task's heads."""

    def __init__(self, agent: Agent, task: AuxiliaryTask):
        super().__init__()
        self.agent = agent
        self.task = task

    def forward(self, batch: Batch) -> tuple[Unroll, Tensor]:
        """The agent's outputs and the task's prediction over a batch."""
        unroll = self.agent.unroll(batch)
        with errors_named(_call(self.task, "predict")):
            return unroll, self.task.predict(unroll.features, batch)


@dataclass(frozen=True)
class MainEvaluation:
    """Forward pass of theta on a batch, the main loss L_RL, and its gradient with respect to the network's outputs."""

    theta: list[Tensor]
    batch: Batch
    differentiable: bool
    """Whether gradients can themselves be differentiated."""
    unroll: Unroll
    prediction: Tensor
    """Of the task's heads."""
    impala: ImpalaLoss
    losses: dict[str, Tensor]
    """Policy, value and entropy loss: weighted, masked and summed."""
    output_gradients: list[Tensor]
    """dL_RL/dlogits and dL_RL/dvalue."""

    @property
    def outputs(self) -> list[Tensor]:
        return [self.unroll.logits, self.unroll.value]

    @property
    def loss(self) -> Tensor:
        """L_RL"""
        return torch.stack(list(self.losses.values())).sum()

    def gradient(self, retain_graph: bool = True) -> list[Tensor]:
        """dL_RL/dtheta of the whole network, whether or not the update stops it at the torso."""
        output_gradients = [g.detach() for g in self.output_gradients]
        found = torch.autograd.grad(
            self.outputs, self.theta, output_gradients, retain_graph=retain_graph, materialize_grads=True
        )
        return list(found)


@dataclass(frozen=True)
class Evaluation:
    """L_RL + L_aux of theta on a batch, and its gradient."""

    main: MainEvaluation
    questions: tuple[Tensor, ...]
    """Outputs of the question network, detached from it."""
    auxiliary: TaskLoss
    losses: dict[str, Tensor]
    """Those of the main task and the auxiliary one: weighted, masked and summed."""
    gradients: list[Tensor]
    """Of the sum of the losses with respect to theta."""


class Objective:
    """Differentiates in two stages: losses to network outputs, then outputs to theta.

    Bootstrapped targets are constants when theta is updated. But they depend on theta, so the derivative of an update must
    include them. A `differentiable` evaluation therefore computes the targets from the live outputs; the first stage
    excludes them by differentiating with respect to aliases of the outputs that only the predictions use.
    """

    def __init__(self, config: LearnerConfig, network: Network, stop_main_gradient: bool):
        self._config = config
        self._network = network
        trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
        named = {name: p for name, p in trained.items() if not name.startswith(("task.questions.", "task.target."))}
        self.names = list(named)
        self.theta: list[Tensor] = list(named.values())
        self._stop_main_gradient = stop_main_gradient
        auxiliary = [name.startswith(("agent.torso.", "task.")) for name in self.names]
        self._auxiliary_part = [i for i, trained_by_task in enumerate(auxiliary) if trained_by_task]
        """Parameters that only the auxiliary loss trains if the main gradient stops at the torso."""
        self._main_part = [i for i, trained_by_task in enumerate(auxiliary) if not trained_by_task]

    def evaluate_main(self, theta: Sequence[Tensor], batch: Batch, differentiable: bool) -> MainEvaluation:
        config, valid = self._config, batch.valid
        unroll, prediction = functional_call(self._network, dict(zip(self.names, theta, strict=True)), (batch,))
        logits, fixed_logits = _alias(unroll.logits, differentiable)
        value, fixed_value = _alias(unroll.value, differentiable)
        impala = impala_loss(logits, value, fixed_logits, fixed_value, batch, config)
        losses = {
            "policy": (impala.policy * valid).sum(),
            "value": config.value_cost * (impala.value * valid).sum(),
            "entropy": -config.entropy_cost * (impala.entropy * valid).sum(),
        }
        total = torch.stack(list(losses.values())).sum()
        output_gradients = list(torch.autograd.grad(total, [logits, value], create_graph=differentiable))
        return MainEvaluation(list(theta), batch, differentiable, unroll, prediction, impala, losses, output_gradients)

    def evaluate(self, main: MainEvaluation, questions: tuple[Tensor, ...]) -> Evaluation:
        """Adds the auxiliary loss for the given questions."""
        task = self._network.task
        prediction, fixed = _alias(main.prediction, main.differentiable)
        inputs = TaskInputs(main.batch, main.unroll.observations, questions, main.unroll.pixels)
        with errors_named(_call(task, "loss")):
            auxiliary = task.loss(prediction, fixed, inputs)
            for name, found in (("loss", auxiliary.loss), ("mask", auxiliary.mask)):
                if found.shape != main.batch.reward.shape:
                    raise ValueError(f"its {name} is {list(found.shape)}, not [T, B] = {list(main.batch.reward.shape)}")
            loss = task.weight * (auxiliary.loss * auxiliary.mask).sum()
            (prediction_gradient,) = torch.autograd.grad(loss, prediction, create_graph=main.differentiable)
        gradients = self._gradients(main, prediction_gradient)
        return Evaluation(main, questions, auxiliary, main.losses | {"auxiliary": loss}, gradients)

    def _gradients(self, main: MainEvaluation, prediction_gradient: Tensor) -> list[Tensor]:
        theta, graph = main.theta, main.differentiable
        if not self._stop_main_gradient:
            outputs, output_gradients = [*main.outputs, main.prediction], [*main.output_gradients, prediction_gradient]
            found = torch.autograd.grad(outputs, theta, output_gradients, create_graph=graph, materialize_grads=True)
            return list(found)
        gradients: list[Tensor] = list(theta)
        parts = (
            (self._main_part, main.outputs, main.output_gradients),
            (self._auxiliary_part, [main.prediction], [prediction_gradient]),
        )
        for part, outputs, output_gradients in parts:
            found = torch.autograd.grad(
                outputs,
                [theta[i] for i in part],
                output_gradients,
                retain_graph=True,
                create_graph=graph,
                materialize_grads=True,
            )
            for i, gradient in zip(part, found, strict=True):
                gradients[i] = gradient
        return gradients


def _call(task: AuxiliaryTask, method: str) -> str:
    return f"{type(task).__module__}:{type(task).__qualname__}.{method}"


def _alias(output: Tensor, differentiable: bool) -> tuple[Tensor, Tensor]:
    """The output as predictions use it, and as targets use it (stop_gradient unless `differentiable`)."""
    return output.view_as(output), output if differentiable else output.detach()
