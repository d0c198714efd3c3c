"""The learner: one update of theta per batch, and one of phi every M updates."""

from __future__ import annotations

import math
import zlib

import numpy as np
import torch
from torch import Tensor

from agents.agent import Agent, flat_weights
from agents.batch import Batch
from agents.metrics import Metric, evaluate, explained_variance, maximum, mean, ratio
from agents.ranks import ONE_RANK, Ranks
from agents.tasks import AuxiliaryTask, TaskInputs, find_task
from configs.errors import ConfigError, NonFiniteError
from configs.plugins import errors_named, is_foreign
from configs.tasks import MetaConfig
from configs.train import TrainConfig
from envs.stream import EnvSpec
from learners.meta_learner import MetaLearner, SavedWindow
from learners.objective import Evaluation, Network, Objective
from learners.optimiser import annealed, global_norm, make_optimiser, warmed_up
from learners.second_derivatives import check_second_derivatives

ROUNDING = 1e-4
"""Tolerance for the rounding error of an importance weight of 1."""


class Learner:
    """Owns theta (the agent and the task's heads), phi (the task's question network), their optimisers and the counters."""

    def __init__(self, config: TrainConfig, spec: EnvSpec, ranks: Ranks = ONE_RANK):
        check_precision(config)
        self._config = config.learner
        self._ranks = ranks
        self._task_name = config.task
        self._total_frames = config.run.frames
        self._frames_per_step = spec.frames_per_step
        self._optimiser = make_optimiser(self._config)
        self.device = choose_device(self._config.device)
        torch.manual_seed(config.run.seed)
        self.agent = Agent(spec, config.agent.torso, config.agent.lstm_size)
        self.agent.torso_in_bf16 = self._config.precision == "bf16"
        self.task = make_task(config, self.agent, spec)
        self._network = network = Network(self.agent, self.task).to(self.device)
        self._objective = Objective(self._config, network, self._config.stop_main_gradient)
        if self.task.learns_questions and (is_foreign(config.agent.torso) or is_foreign(config.task)):
            check_second_derivatives(config, network, spec)
        self.task.ranks = ranks
        if self._config.compile:
            self.agent.torso.compile()
        self._names, self._parameters = self._objective.names, self._objective.theta
        self._state = self._optimiser.init(self._parameters)
        self._meta = None
        if self.task.learns_questions:
            updates = config.run.frames / (spec.frames_per_step * config.learner.unroll * config.learner.batch_size)
            self._meta = MetaLearner(config.auxiliary, self._objective, self.task, self._optimiser, updates, ranks)
        self.frame = 0
        self.version = 0
        self.histograms: dict[str, Tensor] = {}
        """Of the last update."""
        self._last: tuple[Tensor, TaskInputs] | None = None
        """Prediction and inputs of the task in the last update."""

    def step(self, batch: Batch) -> dict[str, float]:
        """One update of theta, after one of phi if the window is full; returns the metrics of the batch of all ranks."""
        batch = batch.to(self.device)
        if self.version == 0:
            self.agent.set_background(batch.frames, self._ranks)
        learning_rate = annealed(self._config.learning_rate, self.frame, self._total_frames)
        learning_rate = warmed_up(learning_rate, self.version, self._config.warm_up_updates)
        evaluation, norm, meta_metrics = self._update(batch, learning_rate)
        metrics = self._metrics(evaluation, norm)
        self.version += 1
        self.frame += self._ranks.size * batch.steps * self._frames_per_step
        self.histograms = evaluation.auxiliary.histograms
        questions = tuple(question.detach() for question in evaluation.questions)
        main = evaluation.main
        self._last = main.prediction.detach(), TaskInputs(batch, main.unroll.observations, questions)
        return metrics | meta_metrics | {"optimiser/learning_rate": learning_rate}

    def _update(self, batch: Batch, learning_rate: float) -> tuple[Evaluation, Tensor, dict[str, float]]:
        """One update of theta: its evaluation, the norm of its gradient, and the metrics of phi's update if there was one."""
        evaluation, gradient, meta_metrics = self._evaluate(batch, learning_rate)
        norm = global_norm(gradient)
        if not norm.isfinite():
            raise NonFiniteError(self._non_finite_part(evaluation, gradient))
        self._optimiser.step(self._parameters, gradient, self._state, learning_rate, norm)
        with torch.no_grad(), errors_named(f"after_update of task {self._task_name}"):
            self.task.after_update(self.agent.torso)
        return evaluation, norm, meta_metrics

    def _evaluate(self, batch: Batch, learning_rate: float) -> tuple[Evaluation, list[Tensor], dict[str, float]]:
        """The evaluation on this rank's batch, its gradient summed over ranks, and the metrics of phi's update."""
        if self._meta is None:
            main = self._objective.evaluate_main(self._parameters, batch, differentiable=False)
            with torch.no_grad():
                questions = self.task.ask(main.unroll.pixels, batch)
            evaluation = self._objective.evaluate(main, questions)
            return evaluation, self._ranks.start_sum(evaluation.gradients)(), {}
        theta, state = self._parameters, self._state
        if self._meta.enters_window:  # The window keeps them as they were before the update.
            theta = [p.detach().clone().requires_grad_() for p in theta]
            state = state.clone()
        try:
            return self._meta.evaluate(theta, state, learning_rate, batch)
        except NonFiniteError as error:
            raise NonFiniteError(f"{error} {self._where}") from None

    @property
    def window_is_fresh(self) -> bool:
        """Whether the meta-gradient's window holds at most one update, so that the learner holds the least memory.

        Small lasting blocks that are allocated at other times fragment the memory that the window frees.
        """
        return self._meta is None or self._meta.window_is_fresh

    def pictures(self) -> dict[str, np.ndarray]:
        """Figures of the task on the last batch: images [H, W, 3]."""
        if self._last is None:
            return {}
        prediction, inputs = self._last
        with errors_named(f"pictures of task {self._task_name}"):
            return self.task.pictures(prediction, self.agent.preprocess(inputs.observations), inputs)

    def _metrics(self, evaluation: Evaluation, norm: Tensor) -> dict[str, float]:
        config, batch, main = self._config, evaluation.main.batch, evaluation.main.impala
        valid = batch.valid
        count = valid.sum()
        lag = (self.version - batch.version).double()
        value = evaluation.main.unroll.value[:-1].detach()
        metrics: dict[str, Metric] = {f"losses/{name}": ratio(loss, count) for name, loss in evaluation.losses.items()} | {
            "losses/total": ratio(torch.stack(list(evaluation.losses.values())).sum(), count),
            "policy/entropy": mean(main.entropy, valid),
            "vtrace/rho": mean(main.rho, valid),
            "vtrace/clipped_fraction": mean((main.rho > config.rho_clip + ROUNDING).double(), valid),
            "vtrace/advantage": mean(main.vtrace.advantages.abs(), valid),
            "value/mean": mean(value, valid),
            "value/explained_variance": explained_variance(value[valid], main.vtrace.targets[valid]),
            "policy/lag": mean(lag),
            "policy/lag_max": maximum(lag, self._ranks),
            **evaluation.auxiliary.metrics,
        }
        return evaluate(metrics, self._ranks) | {"optimiser/gradient_norm": norm.item()}

    def checksum(self) -> int:
        """Of theta, phi and the task's target network, to the bit."""
        others = [module for module in (self.task.questions, self.task.target) if module is not None]
        found = 0
        for tensor in (*self._parameters, *(value for module in others for value in module.state_dict().values())):
            found = zlib.crc32(tensor.detach().cpu().numpy().tobytes(), found)
        return found

    def weights(self) -> Tensor:
        """The acting network's weights as one flat vector."""
        return flat_weights(self.agent)

    def state_dict(self) -> dict[str, Tensor]:
        state = self._fixed_state()
        if self._meta is not None:
            state |= {f"meta.{name}": value for name, value in self._meta.state_dict().items()}
        return state

    def _fixed_state(self) -> dict[str, Tensor]:
        """The part of the state whose names and shapes follow from the config."""
        network = self._network.state_dict()
        state = {f"parameter.{name}": value for name, value in network.items() if not name.startswith("task.questions.")}
        state |= self._state.named(self._names)
        if self.task.questions is not None:
            state |= {f"question.{name}": value for name, value in self.task.questions.state_dict().items()}
        return state | {"counters": torch.tensor([self.frame, self.version])}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Raises ValueError, naming the first difference, if the state does not fit the network or is not finite."""
        own = self._fixed_state()
        given = {name: value for name, value in state.items() if not name.startswith("meta.")}
        for name in sorted(own.keys() ^ given.keys()):
            raise ValueError(f"'{name}' is only in {'this network' if name in own else 'the checkpoint'}")
        for name, value in own.items():
            if value.shape != given[name].shape:
                raise ValueError(f"'{name}' is {list(given[name].shape)} in the checkpoint, {list(value.shape)} here")
            if not given[name].isfinite().all() or (name.startswith("moment.") and given[name].min() < 0):
                raise ValueError(f"'{name}' has values that no training gives")
        counters = given["counters"]
        if counters.dtype != torch.int64 or counters.min() < 0 or counters.max() >= 2**53:
            raise ValueError(f"'counters' cannot be {counters.tolist()}")
        self.frame, self.version = counters.tolist()
        self._check_updates(given, self.version)
        for name, value in own.items():
            if name != "counters":
                value.copy_(given[name])
        if self._meta is not None:
            saved = {name.removeprefix("meta."): value for name, value in state.items() if name.startswith("meta.")}
            if (window := self._meta.load_state_dict(saved)) is not None:
                self._replay(window)
                # The same numbers on the same kind of processor; on another, those of the checkpoint hold.
                torch._foreach_copy_(self._parameters, [given[f"parameter.{name}"] for name in self._names])
                for name, value in self._state.named(self._names).items():
                    value.copy_(given[name])

    def _replay(self, window: SavedWindow) -> None:
        """Repeats the updates of a checkpoint's window, which rebuilds their graphs."""
        torch._foreach_copy_(self._parameters, window.theta)
        self._check_updates(window.state, self.version - len(window.batches))
        for name, value in self._state.named(self._names).items():
            value.copy_(window.state[name])
        with torch.enable_grad():
            for learning_rate, batch in zip(window.learning_rates, window.batches, strict=True):
                self._update(batch.to(self.device), learning_rate)

    @staticmethod
    def _check_updates(state: dict[str, Tensor], expected: int) -> None:
        """Raises ValueError if an optimiser's state is not that after `expected` updates."""
        if "optimiser_updates" in state and (found := state["optimiser_updates"]).item() != expected:
            raise ValueError(f"'optimiser_updates' cannot be {found.item()} after {expected} updates")

    @property
    def _where(self) -> str:
        return f"at update {self.version + 1}, frame {self.frame}"

    def _non_finite_part(self, evaluation: Evaluation, gradient: list[Tensor]) -> str:
        losses = self._ranks.sum_(torch.stack([loss.detach() for loss in evaluation.losses.values()]))
        for name, loss in zip(evaluation.losses, losses.tolist(), strict=True):
            if not math.isfinite(loss):
                return f"the {name} loss is {loss} {self._where}"
        for name, part in zip(self._names, gradient, strict=True):
            if not part.isfinite().all():
                return f"the gradient of {name} is not finite {self._where}"
        return f"the norm of the gradient overflows {self._where}"


def check_precision(config: TrainConfig) -> None:
    """Raise ConfigError if the task needs a meta-gradient, which the rounding of bfloat16 would swamp."""
    if config.learner.precision == "bf16" and isinstance(config.auxiliary, MetaConfig):
        raise ConfigError(
            f"--precision bf16 is too coarse for the meta-gradient of --task {config.task}; use --precision float32"
        )


def make_task(config: TrainConfig, agent: Agent, spec: EnvSpec) -> AuxiliaryTask:
    """The task of a config, attached to the agent's torso; raises ConfigError if it cannot be trained."""
    if isinstance(config.auxiliary, dict):
        raise ConfigError(
            f"task {config.task} was named by a file only: `config.with_trusted_task()` declares that you trust it"
        )
    with errors_named(f"build of task {config.task}"):
        task = find_task(config.task).build(config.auxiliary, spec, agent.torso.num_features)
        task.attach(agent.torso)
    if task.learns_questions and task.questions is None:
        raise ConfigError(f"task {config.task} learns its questions but has no question network: its `questions` is None")
    if task.learns_questions and task.target is not None:
        raise ConfigError(
            f"task {config.task} learns its questions, so it cannot have a target network: no gradient goes through it"
        )
    return task


def choose_device(name: str) -> torch.device:
    """Raises ConfigError if there is no such device."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch finds no CUDA device here; --device auto takes what there is")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
