"""The learner: one batch in, one update of theta."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from agents.agent import Agent, flat_weights
from agents.batch import Batch
from agents.tasks import TASKS
from configs.train import TrainConfig
from envs.stream import EnvSpec
from learners.losses import explained_variance, impala_loss
from learners.optimiser import RMSPropConstants, annealed, global_norm, rmsprop_step

ROUNDING = 1e-4
"""What rounding alone can add to an importance weight of 1."""


class NonFiniteError(RuntimeError):
    """A loss or gradient is NaN or infinite; the update that would have spoilt the parameters was not made."""


class Learner:
    """Owns theta (the agent and the task's heads), the optimiser's moments and the counters."""

    def __init__(self, config: TrainConfig, spec: EnvSpec):
        self._config = config.learner
        self._total_frames = config.run.frames
        self._frames_per_step = spec.frames_per_step
        self._constants = RMSPropConstants(self._config.rmsprop_decay, self._config.rmsprop_eps, self._config.clip_norm)
        self.device = choose_device(self._config.device)
        torch.manual_seed(config.run.seed)
        self.agent = Agent(spec, config.agent.torso, config.agent.core_size).to(self.device)
        self.task = TASKS[config.task]().to(self.device)
        named = self._named_parameters()
        self._names, self._parameters = list(named), list(named.values())
        start = self._config.rmsprop_initial_moment
        self._moments = [torch.full_like(parameter, start) for parameter in self._parameters]
        self.frame = 0
        self.version = 0

    def step(self, batch: Batch) -> dict[str, float]:
        """One update; returns the metrics of this batch."""
        config = self._config
        batch = batch.to(self.device)
        unroll = self.agent.unroll(batch)
        main = impala_loss(unroll, batch, config)
        auxiliary = self.task(unroll, batch)

        valid = batch.valid
        losses = {
            "policy": (main.policy * valid).sum(),
            "value": config.value_cost * (main.value * valid).sum(),
            "entropy": -config.entropy_cost * (main.entropy * valid).sum(),
            "auxiliary": (auxiliary.loss * auxiliary.mask).sum(),
        }
        total = torch.stack(list(losses.values())).sum()
        gradients = list(torch.autograd.grad(total, self._parameters))
        norm = global_norm(gradients)
        learning_rate = annealed(config.learning_rate, self.frame, self._total_frames)
        count = valid.sum()
        lag = (self.version - batch.version).float()
        metrics = {f"losses/{name}": loss.detach() / count for name, loss in losses.items()} | {
            "losses/total": total.detach() / count,
            "policy/entropy": (main.entropy * valid).sum().detach() / count,
            "vtrace/rho": (main.rho * valid).sum() / count,
            "vtrace/clipped_fraction": ((main.rho > config.rho_clip + ROUNDING) & valid).sum() / count,
            "vtrace/advantage": (main.vtrace.advantages.abs() * valid).sum() / count,
            "value/mean": (unroll.value[:-1].detach() * valid).sum() / count,
            "value/explained_variance": explained_variance(unroll.value[:-1].detach()[valid], main.vtrace.targets[valid]),
            "optimiser/gradient_norm": norm,
            "policy/lag": lag.mean(),
            "policy/lag_max": lag.max(),
            **auxiliary.metrics,
        }
        numbers = dict(zip(metrics, torch.stack([value.float() for value in metrics.values()]).tolist(), strict=True))
        if not math.isfinite(numbers["optimiser/gradient_norm"]):
            raise NonFiniteError(self._culprit(losses, gradients))
        numbers["optimiser/learning_rate"] = learning_rate

        rmsprop_step(self._parameters, gradients, self._moments, learning_rate, norm, self._constants)
        self.version += 1
        self.frame += batch.steps * self._frames_per_step
        return numbers

    def weights(self) -> Tensor:
        """What the actors need, as one vector."""
        return flat_weights(self.agent)

    def state_dict(self) -> dict[str, Tensor]:
        state = {f"parameter.{name}": p.detach() for name, p in zip(self._names, self._parameters, strict=True)}
        state |= {f"moment.{name}": moment for name, moment in zip(self._names, self._moments, strict=True)}
        return state | {"counters": torch.tensor([self.frame, self.version])}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Raises ValueError, naming the first difference, if the state is of another network."""
        own = self.state_dict()
        for name in sorted(own.keys() ^ state.keys()):
            raise ValueError(f"'{name}' is only in {'this network' if name in own else 'the checkpoint'}")
        for name, value in own.items():
            if value.shape != state[name].shape:
                raise ValueError(f"'{name}' is {list(state[name].shape)} in the checkpoint, {list(value.shape)} here")
        for name, parameter, moment in zip(self._names, self._parameters, self._moments, strict=True):
            parameter.copy_(state[f"parameter.{name}"])
            moment.copy_(state[f"moment.{name}"])
        self.frame, self.version = state["counters"].tolist()

    def _named_parameters(self) -> dict[str, Tensor]:
        return {
            f"{owner}.{name}": parameter
            for owner, module in (("agent", self.agent), ("task", self.task))
            for name, parameter in module.named_parameters()
        }

    def _culprit(self, losses: dict[str, Tensor], gradients: list[Tensor]) -> str:
        where = f"at update {self.version + 1}, frame {self.frame}"
        for name, loss in losses.items():
            if not loss.isfinite():
                return f"the {name} loss is {loss.item()} {where}"
        for name, gradient in zip(self._names, gradients, strict=True):
            if not gradient.isfinite().all():
                return f"the gradient of {name} is not finite {where}"
        return f"the norm of the gradient overflows {where}"


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
