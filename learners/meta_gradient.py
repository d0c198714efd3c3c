"""The meta-gradient: how should the questions change, so that K updates of theta serve the main task better?

The objective is J(phi) = sum_{i=0..K} L_RL(theta_i), each term on the batch that theta_i meets, where theta_{i+1} is the real
update of theta_i: gradient of L_RL + L_aux, clip, RMSProp. Going backwards through the window with the adjoints
theta_bar = dJ/dtheta_i and moment_bar = dJ/dm_i, an update needs

    u            = dJ/dg_i                          from the update rule alone (`rmsprop_adjoint`),
    dJ/dtheta_i += (dg_i/dtheta_i)^T u + dL_RL/dtheta_i,
    dJ/dq_i      = (dg_i/dq_i)^T u                  for the question network's outputs q_i,

and the last two are one backward pass through the graph of (u . g_i + L_RL). dJ/dq_i is then pulled back through the
question network, whose parameters have been the same throughout the window. The first-order form leaves out
(dg_i/dtheta_i)^T u.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.batch import Batch
from agents.tasks import AuxiliaryTask
from learners.objective import Evaluation, Objective
from learners.optimiser import RMSPropConstants, rmsprop_adjoint


@dataclass
class Traced:
    """An update's gradient with its graph, and the questions with theirs."""

    evaluation: Evaluation
    asked: tuple[Tensor, ...]
    """What the question network emitted, attached to it; `evaluation.questions` are the same values, detached."""


@dataclass
class InnerStep:
    """The inputs of one update of theta, from which everything about it can be computed again."""

    theta: list[Tensor]
    moments: list[Tensor]
    learning_rate: float
    batch: Batch
    loss: Tensor
    """L_RL(theta)"""
    traced: Traced | None
    """Kept from the update itself, if there is memory for it."""


class MetaGradient:
    """The window of the last updates, and the sweep back through it."""

    def __init__(
        self, objective: Objective, task: AuxiliaryTask, constants: RMSPropConstants, interval: int, memory_bytes: float
    ):
        assert task.questions is not None
        self._objective = objective
        self._task = task
        self._constants = constants
        self._interval = interval
        self._memory_bytes = memory_bytes
        self._step_bytes: int | None = None
        self.phi: list[Tensor] = list(task.questions.parameters())
        self.steps: list[InnerStep] = []

    @property
    def full(self) -> bool:
        return len(self.steps) == self._interval

    @property
    def keeps_graphs(self) -> bool:
        """Whether K graphs of the size of the first one fit into the memory allowed."""
        return self._step_bytes is None or self._step_bytes * self._interval <= self._memory_bytes

    def trace(self, begun: Evaluation) -> Traced:
        """Completes an evaluation with questions asked of the question network as it is now."""
        with torch.set_grad_enabled(begun.differentiable):
            asked = self._task.ask(begun.unroll.pixels, begun.batch)
        self._objective.finish(begun, tuple(q.detach().requires_grad_(begun.differentiable) for q in asked))
        return Traced(begun, asked)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Notes, the first time, how many bytes the graph of what is done inside holds on to."""
        if self._step_bytes is not None:
            yield
            return
        held: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            yield
        self._step_bytes = sum(held.values())

    def sweep(self, last: list[Tensor], exact: bool, keep: bool = False) -> list[Tensor]:
        """dJ/dphi; `last` is dL_RL(theta_K)/dtheta on the batch after the window; `keep` saves the graphs for another sweep."""
        theta_bar = [bar.clone() for bar in last]
        moment_bar = [torch.zeros_like(bar) for bar in last]
        phi_bar = [torch.zeros_like(parameter) for parameter in self.phi]
        for i, step in reversed(list(enumerate(self.steps))):
            traced = step.traced or self.trace(self._objective.begin(step.theta, step.batch, differentiable=True))
            evaluation = traced.evaluation
            gradients = [g.detach() for g in evaluation.gradients]
            u, moment_bar = rmsprop_adjoint(gradients, step.moments, step.learning_rate, self._constants, theta_bar, moment_bar)
            questions = list(evaluation.questions)
            if i == 0:  # theta_0 does not depend on phi: what comes before it is not asked for.
                question_bar = _grad(evaluation.gradients, questions, u, keep)
            elif exact:
                pull = [*u, *(p.detach() for p in evaluation.main_pull)]
                outputs = [*evaluation.gradients, *evaluation.main_outputs]
                bars = _grad(outputs, [*questions, *step.theta], pull, keep)
                question_bar, more = bars[: len(questions)], bars[len(questions) :]
                torch._foreach_add_(theta_bar, more)
            else:
                question_bar = _grad(evaluation.gradients, questions, u, keep=True)
                torch._foreach_add_(theta_bar, evaluation.main_gradient(retain_graph=keep))
            torch._foreach_add_(phi_bar, _grad(list(traced.asked), self.phi, question_bar, keep))
            if not keep:
                step.traced = None
        return phi_bar


def _grad(outputs: list[Tensor], inputs: list[Tensor], pull: list[Tensor], keep: bool) -> list[Tensor]:
    return list(torch.autograd.grad(outputs, inputs, pull, retain_graph=keep, materialize_grads=True))
