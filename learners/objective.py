"""What theta minimises on a batch, L_RL + L_aux, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from agents.agent import Agent, Unroll
from agents.batch import Batch
from agents.tasks import AuxiliaryTask, TaskInputs, TaskLoss
from configs.train import LearnerConfig
from learners.losses import ImpalaLoss, impala_loss


class Network(nn.Module):
    """Everything that theta parametrises: the agent and the task's heads."""

    def __init__(self, agent: Agent, task: AuxiliaryTask):
        super().__init__()
        self.agent = agent
        self.task = task

    def forward(self, batch: Batch) -> tuple[Unroll, Tensor]:
        """What the agent and the task's heads make of a batch."""
        unroll = self.agent.unroll(batch)
        return unroll, self.task.predict(unroll.features)


@dataclass
class Evaluation:
    """Theta on a batch: outputs, losses and, stage by stage, the gradient."""

    theta: list[Tensor]
    batch: Batch
    differentiable: bool
    """Whether the gradient can itself be differentiated."""
    unroll: Unroll
    prediction: Tensor
    main: ImpalaLoss
    losses: dict[str, Tensor]
    """Weighted, masked and summed."""
    main_pull: list[Tensor]
    """Derivatives of the main loss with respect to the logits and the value."""
    questions: tuple[Tensor, ...] = ()
    """What the task asked, cut off from the question network."""
    auxiliary: TaskLoss = field(init=False)
    gradients: list[Tensor] = field(init=False)

    @property
    def main_outputs(self) -> list[Tensor]:
        return [self.unroll.logits, self.unroll.value]

    @property
    def main_loss(self) -> Tensor:
        return torch.stack([self.losses[name] for name in ("policy", "value", "entropy")]).sum()

    def main_gradient(self, retain_graph: bool = True) -> list[Tensor]:
        """dL_RL/dtheta, of the whole network whether or not the update stops it at the torso."""
        pull = [p.detach() for p in self.main_pull]
        return list(torch.autograd.grad(self.main_outputs, self.theta, pull, retain_graph=retain_graph, materialize_grads=True))


class Objective:
    """Differentiates in two stages: from the losses to the network's outputs, and from those to theta.

    The targets of the losses take no gradient when theta is updated. But they do depend on theta, so whoever differentiates
    an update must not forget them. A `differentiable` evaluation therefore computes the targets from the live outputs, and
    the first stage leaves them out by differentiating with respect to aliases of the outputs that only the predictions use.
    """

    def __init__(self, config: LearnerConfig, network: Network, stop_main_gradient: bool):
        self._config = config
        self._network = network
        named = {name: p for name, p in network.named_parameters() if not name.startswith("task.questions.")}
        self.names = list(named)
        self.theta: list[Tensor] = list(named.values())
        self._stops = stop_main_gradient
        taught_by_task = [name.startswith(("agent.torso.", "task.")) for name in self.names]  # If the main gradient stops.
        self._auxiliary_part = [i for i, by_task in enumerate(taught_by_task) if by_task]
        self._main_part = [i for i, by_task in enumerate(taught_by_task) if not by_task]

    def begin(self, theta: Sequence[Tensor], batch: Batch, differentiable: bool) -> Evaluation:
        """The network's outputs and the main loss."""
        config, valid = self._config, batch.valid
        unroll, prediction = functional_call(self._network, dict(zip(self.names, theta, strict=True)), (batch,))
        logits, fixed_logits = _alias(unroll.logits, differentiable)
        value, fixed_value = _alias(unroll.value, differentiable)
        main = impala_loss(logits, value, fixed_logits, fixed_value, batch, config)
        losses = {
            "policy": (main.policy * valid).sum(),
            "value": config.value_cost * (main.value * valid).sum(),
            "entropy": -config.entropy_cost * (main.entropy * valid).sum(),
        }
        total = torch.stack(list(losses.values())).sum()
        pull = torch.autograd.grad(total, [logits, value], create_graph=differentiable)
        return Evaluation(list(theta), batch, differentiable, unroll, prediction, main, losses, list(pull))

    def finish(self, evaluation: Evaluation, questions: tuple[Tensor, ...]) -> None:
        """The task's loss, and the gradient of everything."""
        differentiable, task = evaluation.differentiable, self._network.task
        live, fixed = _alias(evaluation.prediction, differentiable)
        inputs = TaskInputs(evaluation.batch, evaluation.unroll.observations, questions)
        auxiliary = task.loss(live, fixed, inputs)
        loss = task.weight * (auxiliary.loss * auxiliary.mask).sum()
        (pull,) = torch.autograd.grad(loss, live, create_graph=differentiable)
        evaluation.questions, evaluation.auxiliary = questions, auxiliary
        evaluation.losses["auxiliary"] = loss
        evaluation.gradients = self._gradients(evaluation, pull)

    def _gradients(self, evaluation: Evaluation, pull: Tensor) -> list[Tensor]:
        theta, graph = evaluation.theta, evaluation.differentiable
        if not self._stops:
            outputs, pulls = [*evaluation.main_outputs, evaluation.prediction], [*evaluation.main_pull, pull]
            return list(torch.autograd.grad(outputs, theta, pulls, create_graph=graph))
        gradients: list[Tensor] = list(theta)
        parts = (
            (self._main_part, evaluation.main_outputs, evaluation.main_pull),
            (self._auxiliary_part, [evaluation.prediction], [pull]),
        )
        for part, outputs, pulls in parts:
            found = torch.autograd.grad(
                outputs, [theta[i] for i in part], pulls, retain_graph=True, create_graph=graph, materialize_grads=True
            )
            for i, gradient in zip(part, found, strict=True):
                gradients[i] = gradient
        return gradients


def _alias(output: Tensor, differentiable: bool) -> tuple[Tensor, Tensor]:
    """The output as the losses see it: once for predictions, once for targets."""
    return output.view_as(output), output if differentiable else output.detach()
