"""Learns the questions: every M updates of theta, phi moves along the meta-gradient through the last K of them."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from agents.batch import Batch
from agents.tasks import AuxiliaryTask
from configs.errors import NonFiniteError
from configs.train import TaskConfig
from learners.meta_gradient import InnerStep, MetaGradient
from learners.objective import Evaluation, Objective
from learners.optimiser import RMSPropConstants, global_norm, rmsprop_step

OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


class MetaLearner:
    """Owns phi's optimiser and the window of the last updates of theta."""

    def __init__(self, config: TaskConfig, objective: Objective, task: AuxiliaryTask, constants: RMSPropConstants):
        self._exact = config.meta_gradient == "exact"
        self._cosine = config.meta_cosine
        self._objective = objective
        self._task = task
        self._constants = constants
        self._window = MetaGradient(objective, task, constants, config.meta_interval, config.meta_memory_gb * 2**30)
        self._period = config.question_period
        self._outside = self._period - config.meta_interval
        """Updates of a period before the window begins."""
        self._position = 0
        """Updates of theta since phi last moved."""
        self._optimiser = OPTIMISERS[config.meta_optimiser](self._window.phi, lr=config.meta_learning_rate)  # type: ignore[call-arg]

    def evaluate(
        self, theta: list[Tensor], moments: list[Tensor], learning_rate: float, batch: Batch
    ) -> tuple[Evaluation, dict[str, float]]:
        """The gradient that theta is about to follow, entered into the window if the period has come to it.

        If the window is full, this batch is the one that judges its last update: phi moves first, and a new period begins.
        """
        window, metrics, enters = self._window, {}, self.enters_window
        with window.measured() if enters else nullcontext():
            evaluation = self._objective.begin(theta, batch, differentiable=enters and window.keeps_graphs)
            if window.full:
                metrics = self._update(evaluation)
                self._position = 0
            traced = window.trace(evaluation)
        self._position += 1
        if enters:
            kept = traced if window.keeps_graphs else None
            window.steps.append(InnerStep(theta, moments, learning_rate, batch, evaluation.main_loss.detach(), kept))
        return evaluation, metrics

    @property
    def enters_window(self) -> bool:
        """Whether the meta-gradient will be taken through the next update."""
        return self._position % self._period >= self._outside

    @property
    def window_just_began(self) -> bool:
        """Or has yet to begin."""
        return len(self._window.steps) <= 1

    def _update(self, judge: Evaluation) -> dict[str, float]:
        start = time.perf_counter()
        window = self._window
        last = judge.main_gradient()
        loss = torch.stack([step.loss for step in window.steps]).sum() + judge.main_loss.detach()
        metrics = {"meta/loss": loss.item() / self._valid_steps(judge)}
        gradient = window.sweep(last, self._exact, keep=self._cosine)
        if self._cosine:
            other = window.sweep(last, not self._exact)
            metrics["meta/cosine"] = cosine_similarity(_flat(gradient), _flat(other), dim=0).item()
        metrics["meta/gradient_norm"] = global_norm(gradient).item()
        if not math.isfinite(metrics["meta/gradient_norm"]):
            raise NonFiniteError(self._culprit(judge, gradient))
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

    def _culprit(self, judge: Evaluation, gradient: list[Tensor]) -> str:
        for name, loss in judge.losses.items():
            if not loss.isfinite():
                return f"the {name} loss, which judges the questions, is {loss.item()}"
        assert self._task.questions is not None
        for (name, _), bar in zip(self._task.questions.named_parameters(), gradient, strict=True):
            if not bar.isfinite().all():
                return f"the meta-gradient of the question network's {name} is not finite"
        return "the norm of the meta-gradient overflows"

    def _valid_steps(self, judge: Evaluation) -> int:
        return int(sum(batch.valid.sum() for batch in (*(step.batch for step in self._window.steps), judge.batch)))

    def state_dict(self) -> dict[str, Tensor]:
        """Phi's optimiser, the place in the period, and the window: the state before its first update and the batches since."""
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
            state |= {f"window.moment.{name}": m for name, m in zip(names, steps[0].moments, strict=True)}
            state["window.learning_rates"] = torch.tensor([step.learning_rate for step in steps], dtype=torch.float64)
            for item in fields(Batch):
                state[f"window.batch.{item.name}"] = torch.stack([getattr(step.batch, item.name) for step in steps])
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes up phi's optimiser and makes the window's updates again, which gives the same numbers.

        Raises ValueError for a state that this optimiser cannot have come to.
        """
        optimiser = self._optimiser.state_dict()
        optimiser["state"] = {}
        stepped = copy.deepcopy(self._optimiser)  # Torch checks nothing before the next step; this one shows what there is.
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
            return
        self._position -= entered
        names, device = self._objective.names, self._window.phi[0].device
        theta = [state[f"window.theta.{name}"].to(device) for name in names]
        moments = [state[f"window.moment.{name}"].to(device) for name in names]
        for own, *given in zip(self._objective.theta, theta, moments, strict=True):
            if {value.shape for value in given} != {own.shape}:
                raise ValueError("the window is of another network")
        batches = _unstack({item.name: state[f"window.batch.{item.name}"] for item in fields(Batch)})
        for learning_rate, batch in zip(state["window.learning_rates"].tolist(), batches, strict=True):
            theta, moments = _like(self._objective.theta, theta), _like(self._objective.theta, moments)
            evaluation, _ = self.evaluate([p.requires_grad_() for p in theta], moments, learning_rate, batch.to(device))
            theta, moments = [p.detach().clone() for p in theta], [m.clone() for m in moments]
            norm = global_norm(evaluation.gradients)
            rmsprop_step(theta, evaluation.gradients, moments, learning_rate, norm, self._constants)


def _like(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
    """Copies of `values` in the memory layout of `parameters`: another layout would round differently."""
    return [torch.empty_like(p).copy_(value) for p, value in zip(parameters, values, strict=True)]


def _unstack(arrays: dict[str, Tensor]) -> list[Batch]:
    return [Batch(**dict(zip(arrays, values, strict=True))) for values in zip(*arrays.values(), strict=True)]


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])
