"""Whether the meta-gradient can be taken through a torso and a task that are not built in.

A layer without a second derivative may raise an error in the second backward pass. It may also return a first derivative
that is detached from the parameters, even if it is marked as once differentiable: then the second derivative lacks terms
and differs from finite differences.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from agents.batch import Batch
from configs.errors import ConfigError
from configs.train import TrainConfig
from envs.fields import FIELDS
from envs.stream import EnvSpec
from learners.objective import Network, Objective

TIME, GAMES = 2, 2
STEP = 1e-8
"""Of the finite differences, in double precision: so small that hardly any ReLU changes sign."""
TRIALS = 3
"""Directions in which a parameter is moved: its derivative is wrong if all of them say so."""
TOLERANCE = 0.1
NEGLIGIBLE = 1e-3
"""Changes of the gradient that are relatively smaller are not compared."""


def check_second_derivatives(config: TrainConfig, network: Network, spec: EnvSpec) -> None:
    """Raise ConfigError if the gradient of the agent and the task on a batch of noise cannot be differentiated.

    Networks that do not compute in double precision are only checked for errors.
    """
    device = next(network.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        copied = copy.deepcopy(network).double()
        objective = Objective(config.learner, copied, config.learner.stop_main_gradient)
        batch = noise(spec, config.agent.lstm_size).to(device)
        theta = [parameter.detach().clone().requires_grad_() for parameter in objective.theta]
        along = [torch.randn_like(parameter) for parameter in theta]
        try:
            value = _gradient_along(objective, copied, theta, batch, along)
            second = torch.autograd.grad(value, theta, materialize_grads=True)
        except (RuntimeError, NotImplementedError) as error:
            raise ConfigError(f"{_subject(config)} has no second derivative: {str(error).splitlines()[0]}") from None
        if value.dtype != torch.float64:
            return

        def is_wrong(i: int) -> bool:
            step = STEP * torch.randn_like(theta[i])
            moved = [[*theta[:i], (theta[i].detach() + s).requires_grad_(), *theta[i + 1 :]] for s in (-step, step)]
            low, high = (_gradient_along(objective, copied, values, batch, along).item() for values in moved)
            expected, found = (high - low) / 2, (second[i] * step).sum().item()
            return abs(expected - found) > TOLERANCE * max(abs(expected), abs(found), NEGLIGIBLE * STEP * abs(value.item()))

        for i, name in enumerate(objective.names):
            if name.startswith(("agent.torso.", "task.")) and all(is_wrong(i) for _ in range(TRIALS)):
                raise ConfigError(f"{_subject(config)} has a wrong second derivative with respect to {name}")


def _gradient_along(objective: Objective, network: Network, theta: list[Tensor], batch: Batch, along: list[Tensor]) -> Tensor:
    """The inner product of the gradient of L_RL + L_aux with a vector."""
    main = objective.evaluate_main(theta, batch, differentiable=True)
    questions = tuple(question.detach() for question in network.task.ask(main.unroll.pixels, batch))
    gradients = objective.evaluate(main, questions).gradients
    return torch.stack([(g * u).sum() for g, u in zip(gradients, along, strict=True)]).sum()


def _subject(config: TrainConfig) -> str:
    return f"task {config.task} needs second derivatives for its meta-gradient, and torso {config.agent.torso} or the task"


def noise(spec: EnvSpec, lstm_size: int) -> Batch:
    """A batch of random frames without an episode border."""
    shapes = {"stack": spec.observation_shape, "core_state": (2 * lstm_size,)}
    rng = np.random.default_rng(0)
    fields: dict[str, Tensor] = {}
    for name, field in FIELDS.items():
        steps = {"start": (), "step": (TIME,), "observation": (TIME + 1,)}[field.time]
        shape = (*steps, GAMES, *(shapes[name] if name in shapes else field.shape(spec)))
        fields[name] = torch.from_numpy(np.zeros(shape, field.dtype))
        if name in ("stack", "frames"):
            fields[name].copy_(torch.from_numpy(rng.integers(256, size=shape)))
        if name in ("valid", "discount", "reward"):
            fields[name].fill_(1)
    fields["core_state"] = fields["core_state"].double()
    return Batch(**fields, version=torch.zeros(GAMES, dtype=torch.int64))
