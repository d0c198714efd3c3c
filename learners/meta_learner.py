"""Meta-learning of the questions: every M updates of theta, one update of phi by the meta-gradient through the last K."""

from __future__ import annotations

import copy
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from agents.batch import Batch, env_axis
from agents.metrics import evaluate, ratio
from agents.ranks import ONE_RANK, Ranks
from agents.tasks import AuxiliaryTask
from configs.errors import NonFiniteError
from configs.tasks import MetaConfig
from learners.meta_gradient import InnerStep, MetaGradient
from learners.objective import Evaluation, MainEvaluation, Objective
from learners.optimiser import Optimiser, OptimiserState, global_norm

OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


@dataclass(frozen=True)
class SavedWindow:
    """The window of a checkpoint: parameters and the optimiser's state before its first update, then the updates' inputs.

    The batches are those of this rank.
    """

    theta: list[Tensor]
    state: dict[str, Tensor]
    """By name."""
    learning_rates: list[float]
    batches: list[Batch]


class MetaLearner:
    """Owns phi's optimiser and the window of the last updates of theta."""

    def __init__(
        self,
        config: MetaConfig,
        objective: Objective,
        task: AuxiliaryTask,
        optimiser: Optimiser,
        updates: float,
        ranks: Ranks = ONE_RANK,
    ):
        """`updates` of theta in the whole run."""
        self._exact = config.meta_gradient == "exact"
        self._cosine = config.meta_cosine
        self._clip_norm = config.meta_clip_norm
        self._objective = objective
        self._task = task
        self._theta_optimiser = optimiser
        self._ranks = ranks
        self._window = MetaGradient(objective, task, optimiser, config.meta_interval, config.meta_memory_gb * 2**30, ranks)
        self._period = config.question_period
        self._outside = self._period - config.meta_interval
        """Updates of a period before its window."""
        self._position = 0
        """Updates of theta since the last update of phi."""
        rate = config.question_learning_rate(updates)
        self._optimiser = OPTIMISERS[config.meta_optimiser](self._window.phi, lr=rate)  # type: ignore[call-arg]

    def evaluate(
        self, theta: list[Tensor], state: OptimiserState, learning_rate: float, batch: Batch
    ) -> tuple[Evaluation, list[Tensor], dict[str, float]]:
        """The evaluation for the next update of theta, which is added to the window if it falls into it.

        Returns it with its gradient summed over ranks, and the metrics of an update of phi if there was one.
        If the window is full, this batch is the outer batch of its last update: phi is updated first and a new period begins.
        """
        window, metrics, enters = self._window, {}, self.enters_window
        with window.measured() if enters else nullcontext():
            main = self._objective.evaluate_main(theta, batch, differentiable=enters and window.keeps_graphs)
            if window.full:
                metrics = self._update(main)
                self._position = 0
            traced = window.trace(main)
        self._position += 1
        gradient = self._ranks.start_sum([g.detach() for g in traced.evaluation.gradients])()
        if enters:
            kept = traced if window.keeps_graphs else None
            window.steps.append(InnerStep(theta, state, learning_rate, batch, main.loss.detach(), gradient, kept))
        return traced.evaluation, gradient, metrics

    @property
    def enters_window(self) -> bool:
        """Whether the meta-gradient will be taken through the next update."""
        return self._position % self._period >= self._outside

    @property
    def window_is_fresh(self) -> bool:
        """Whether the window holds at most the update just made."""
        return len(self._window.steps) <= 1

    def _update(self, outer: MainEvaluation) -> dict[str, float]:
        """One step of phi along the meta-gradient; `outer` is the evaluation on the outer batch."""
        start = time.perf_counter()
        window = self._window
        last = self._ranks.start_sum(outer.gradient())()
        loss = torch.stack([step.loss for step in window.steps]).sum() + outer.loss.detach()
        metrics = evaluate({"meta/loss": ratio(loss, self._valid_steps(outer.batch))}, self._ranks)
        gradient = window.backpropagate(last, self._exact, keep=self._cosine)
        if self._cosine:
            other = window.backpropagate(last, not self._exact)
            metrics["meta/cosine"] = cosine_similarity(_flat(gradient), _flat(other), dim=0).item()
        metrics["meta/gradient_norm"] = global_norm(gradient).item()
        if not math.isfinite(metrics["meta/gradient_norm"]):
            raise NonFiniteError(self._non_finite_part(outer, gradient))
        if self._clip_norm and metrics["meta/gradient_norm"] > self._clip_norm:
            torch._foreach_mul_(gradient, self._clip_norm / metrics["meta/gradient_norm"])
        before = [parameter.detach().clone() for parameter in window.phi]
        for parameter, bar in zip(window.phi, gradient, strict=True):
            parameter.grad = bar
        self._optimiser.step()
        self._optimiser.zero_grad()
        moved = [after.detach() - old for after, old in zip(window.phi, before, strict=True)]
        metrics["meta/update_norm"] = global_norm(moved).item()
        window.steps.clear()
        metrics["meta/seconds"] = time.perf_counter() - start
        return metrics

    def _non_finite_part(self, outer: MainEvaluation, gradient: list[Tensor]) -> str:
        losses = self._ranks.sum_(torch.stack([loss.detach() for loss in outer.losses.values()]))
        for name, loss in zip(outer.losses, losses.tolist(), strict=True):
            if not math.isfinite(loss):
                return f"the {name} loss on the outer batch of the meta-gradient is {loss}"
        assert self._task.questions is not None
        for (name, _), bar in zip(self._task.questions.named_parameters(), gradient, strict=True):
            if not bar.isfinite().all():
                return f"the meta-gradient of the question network's {name} is not finite"
        return "the norm of the meta-gradient overflows"

    def _valid_steps(self, outer_batch: Batch) -> Tensor:
        return torch.stack([batch.valid.sum() for batch in (*(step.batch for step in self._window.steps), outer_batch)]).sum()

    def state_dict(self) -> dict[str, Tensor]:
        """Phi's optimiser, the position in the period, and the window: theta before its first update, and the batches since.

        The batches are those of all ranks on rank 0, and of this rank on the others.
        """
        state = {
            f"optimiser.{i}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
            for i, values in self._optimiser.state_dict()["state"].items()
            for name, value in values.items()
            if value is not None
        }
        state["position"] = torch.tensor(self._position)
        steps = self._window.steps
        if steps:
            names = self._objective.names
            state |= {f"window.theta.{name}": p.detach() for name, p in zip(names, steps[0].theta, strict=True)}
            state |= {f"window.{name}": value for name, value in steps[0].state.named(names).items()}
            state["window.learning_rates"] = torch.tensor([step.learning_rate for step in steps], dtype=torch.float64)
            own = {item.name: torch.stack([getattr(step.batch, item.name) for step in steps]) for item in fields(Batch)}
            parts = self._ranks.gather(own) or [own]
            for name in own:
                state[f"window.batch.{name}"] = torch.cat([part[name] for part in parts], dim=1 + env_axis(name))
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> SavedWindow | None:
        """Restores phi's optimiser and the position in the period before the window; returns the window to be replayed, if any.

        Raises ValueError for a state that no training leads to.
        """
        optimiser = self._optimiser.state_dict()
        optimiser["state"] = {}
        stepped = copy.deepcopy(self._optimiser)  # Torch checks a state only at the next step; this one shows its shapes.
        for parameter in stepped.param_groups[0]["params"]:
            parameter.grad = torch.zeros_like(parameter)
        stepped.step()
        expected = stepped.state_dict()["state"]
        for name, value in state.items():
            kind, _, rest = name.partition(".")
            if kind == "optimiser":
                index, key = rest.split(".")
                optimiser["state"].setdefault(int(index), {})[key] = value.clone()
        for index, values in optimiser["state"].items():
            shapes = {key: value.shape for key, value in expected.get(index, {}).items() if value is not None}
            if {key: value.shape for key, value in values.items()} != shapes:
                raise ValueError(f"the state of phi's optimiser is not one of its parameter {index}")
            if not all(value.isfinite().all() and (key == "exp_avg" or value.min() >= 0) for key, value in values.items()):
                raise ValueError(f"the state of phi's optimiser for its parameter {index} has values that no training gives")
        self._optimiser.load_state_dict(optimiser)
        self._window.steps.clear()
        entered = len(state.get("window.learning_rates", ()))
        self._position = int(state["position"]) if "position" in state else entered  # Before there were periods, M was K.
        if not 0 <= self._position <= self._period or entered != max(0, self._position - self._outside):
            raise ValueError(f"{entered} updates cannot be in the window, {self._position} after the questions changed")
        if not entered:
            return None
        self._position -= entered
        names = self._objective.names
        theta = [state[f"window.theta.{name}"] for name in names]
        expected = self._theta_optimiser.init(self._objective.theta).named(names)
        before = {name: state[f"window.{name}"] for name in expected}
        own = [*self._objective.theta, *expected.values()]
        if [value.shape for value in own] != [value.shape for value in (*theta, *before.values())]:
            raise ValueError("the window is of another network")
        batches = _unstack({item.name: self._own_part(item.name, state) for item in fields(Batch)})
        return SavedWindow(theta, before, state["window.learning_rates"].tolist(), batches)

    def _own_part(self, name: str, state: dict[str, Tensor]) -> Tensor:
        """This rank's environments of a field of the saved batches."""
        parts = state[f"window.batch.{name}"].tensor_split(self._ranks.size, dim=1 + env_axis(name))
        return parts[self._ranks.rank].contiguous()


def _unstack(arrays: dict[str, Tensor]) -> list[Batch]:
    return [Batch(**dict(zip(arrays, values, strict=True))) for values in zip(*arrays.values(), strict=True)]


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])
