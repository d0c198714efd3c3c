"""The meta-gradient: the derivative of the main loss over K updates of theta with respect to the question network.

The objective is J(phi) = sum_{i=0..K} L_RL(theta_i), each term on the batch that theta_i meets, where theta_{i+1} is the real
update of theta_i: gradient of L_RL + L_aux, clip, RMSProp or Adam. Going backwards through the window with the adjoints
theta_bar = dJ/dtheta_i and moments_bar = dJ/dm_i, an update needs

    u            = dJ/dg_i                          from the update rule alone (`Optimiser.adjoint`),
    dJ/dtheta_i += (dg_i/dtheta_i)^T u + dL_RL/dtheta_i,
    dJ/dq_i      = (dg_i/dq_i)^T u                  for the question network's outputs q_i,

and the last two are one backward pass through the graph of (u . g_i + L_RL). dJ/dq_i is then pulled back through the
question network, whose parameters are constant within the window. The first-order form omits (dg_i/dtheta_i)^T u.

With several ranks g_i and L_RL are sums over the ranks' parts of the batch: the adjoints are the same on all ranks, each rank
goes back through its own graphs, and what it adds to dJ/dtheta_i and dJ/dphi is summed over ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.batch import Batch
from agents.ranks import ONE_RANK, Ranks
from agents.tasks import AuxiliaryTask
from learners.objective import Evaluation, MainEvaluation, Objective
from learners.optimiser import Moments, Optimiser, OptimiserState


@dataclass
class Traced:
    """The gradient of one update with its graph, and the question network's outputs with theirs."""

    evaluation: Evaluation
    asked: tuple[Tensor, ...]
    """Outputs of the question network, attached to it; `evaluation.questions` are the same values, detached."""


@dataclass
class InnerStep:
    """The inputs of one update of theta, from which its graph can be recomputed."""

    theta: list[Tensor]
    state: OptimiserState
    """The optimiser's, before the update."""
    learning_rate: float
    batch: Batch
    loss: Tensor
    """L_RL(theta) on this rank's batch."""
    gradient: list[Tensor]
    """g, summed over ranks."""
    traced: Traced | None
    """Kept from the update itself while K graphs fit into memory."""


class MetaGradient:
    """The window of the last updates of theta, and backpropagation through it."""

    def __init__(
        self,
        objective: Objective,
        task: AuxiliaryTask,
        optimiser: Optimiser,
        interval: int,
        memory_bytes: float,
        ranks: Ranks = ONE_RANK,
    ):
        assert task.questions is not None
        self._objective = objective
        self._task = task
        self._optimiser = optimiser
        self._interval = interval
        self._memory_bytes = memory_bytes
        self._ranks = ranks
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

    def trace(self, main: MainEvaluation) -> Traced:
        """Adds the auxiliary loss for the questions that the question network asks now."""
        with torch.set_grad_enabled(main.differentiable):
            asked = self._task.ask(main.unroll.pixels, main.batch)
        questions = tuple(q.detach().requires_grad_(main.differentiable) for q in asked)
        return Traced(self._objective.evaluate(main, questions), asked)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Records, the first time, how many bytes the graph built inside keeps alive."""
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
        # The mean over ranks, so that all of them keep graphs or none does.
        self._step_bytes = int(self._ranks.sum_(torch.tensor(sum(held.values()))) // self._ranks.size)

    def backpropagate(self, last: list[Tensor], exact: bool, keep: bool = False) -> list[Tensor]:
        """dJ/dphi; `last` is dL_RL(theta_K)/dtheta on the ranks' batches after the window; `keep` retains the graphs."""
        theta_bar = [bar.clone() for bar in last]
        moments_bar: Moments = {}
        phi_bar = [torch.zeros_like(parameter) for parameter in self.phi]
        for i, step in reversed(list(enumerate(self.steps))):
            traced = step.traced or self.trace(self._objective.evaluate_main(step.theta, step.batch, differentiable=True))
            evaluation, main = traced.evaluation, traced.evaluation.main
            moments_bar = moments_bar or {kind: [torch.zeros_like(bar) for bar in last] for kind in step.state.moments}
            u, moments_bar = self._optimiser.adjoint(step.gradient, step.state, step.learning_rate, theta_bar, moments_bar)
            questions = list(evaluation.questions)
            more: list[Tensor] = []
            if i == 0:  # theta_0 does not depend on phi, so its adjoint is not needed.
                question_bar = _grad(evaluation.gradients, questions, u, keep)
            elif exact:
                outputs = [*evaluation.gradients, *main.outputs]
                output_bars = [*u, *(g.detach() for g in main.output_gradients)]
                bars = _grad(outputs, [*questions, *step.theta], output_bars, keep)
                question_bar, more = bars[: len(questions)], bars[len(questions) :]
            else:
                question_bar = _grad(evaluation.gradients, questions, u, keep=True)
                more = main.gradient(retain_graph=keep)
            summed = self._ranks.start_sum(more)
            torch._foreach_add_(phi_bar, _grad(list(traced.asked), self.phi, question_bar, keep))
            if more:
                torch._foreach_add_(theta_bar, summed())
            if not keep:
                step.traced = None
        return self._ranks.start_sum(phi_bar)()


def _grad(outputs: list[Tensor], inputs: list[Tensor], output_bars: list[Tensor], keep: bool) -> list[Tensor]:
    """The adjoints of `inputs`; the gradient of a parameter that no loss depends on is detached and adds nothing."""
    attached = [(output, bar) for output, bar in zip(outputs, output_bars, strict=True) if output.requires_grad]
    if not attached:
        return [torch.zeros_like(tensor) for tensor in inputs]
    outputs, output_bars = (list(part) for part in zip(*attached, strict=True))
    return list(torch.autograd.grad(outputs, inputs, output_bars, retain_graph=keep, materialize_grads=True))
