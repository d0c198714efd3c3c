"""The density ratio tau = d_pi / d_mu with a neural network: COP-TD (Hallak and Mannor 2017) on minibatches."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from retrospective.finite_mdp import Array, Numbers
from retrospective.neural_quantile_td import ReplayBuffer, perceptron

UNIT_BIAS = 0.5413248546
"""softplus(UNIT_BIAS) = 1: the ratio of equal policies."""


class NeuralDensityRatio:
    """tau(s) = softplus(f(s)), learnt from the behaviour policy's transitions.

    tau(S_t) regresses on rho_{t-1} tau(S_{t-1}), divided by its mean over the minibatch, so that E_mu[tau] = 1. tau(S_{t-1})
    comes from a target network, synchronised every `target_interval` updates.
    """

    def __init__(
        self,
        state_size: int,
        hidden: Sequence[int] = (64, 64),
        learning_rate: float = 1e-3,
        capacity: int = 10_000,
        batch_size: int = 128,
        target_interval: int = 100,
        seed: int = 0,
    ):
        if capacity < batch_size:
            raise ValueError(f"the capacity of the replay buffer must be at least the batch size {batch_size}, not {capacity}")
        self._rng = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = perceptron((state_size, *hidden, 1))
        self._target = copy.deepcopy(self.network).requires_grad_(False)
        self._optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate, fused=True)
        self._replay = ReplayBuffer(capacity, state_size, num_scalars=1)
        self._batch_size = batch_size
        self._target_interval = target_interval
        self._updates = 0

    @torch.no_grad()
    def __call__(self, states: Tensor) -> Tensor:
        """tau [...] at the states [..., F]."""
        return _ratio(self.network, states)

    def observe(self, s_tm1: Array, s_t: Array, rho: Numbers) -> None:
        """Add the transitions of one stream, or of many [streams, ...], with their importance ratios."""
        s_tm1, s_t = np.atleast_2d(s_tm1), np.atleast_2d(s_t)
        ratios = np.broadcast_to(np.asarray(rho, dtype=np.float64), len(s_t))
        if not (np.isfinite(ratios).all() and (ratios >= 0).all() and np.isfinite(s_tm1).all() and np.isfinite(s_t).all()):
            raise ValueError(f"a transition is not finite, or its ratio is negative: rho {ratios.tolist()}")
        self._replay.add(s_tm1, s_t, ratios[:, None])

    def update(self) -> None:
        """One step of Adam on a minibatch; nothing before the replay buffer holds one."""
        if len(self._replay) < self._batch_size:
            return
        states, scalars = self._replay.sample(self._batch_size, self._rng)
        target = scalars[:, 0] * _ratio(self._target, states[:, 0])
        target = target / target.mean().clamp(min=1e-6)
        loss = (_ratio(self.network, states[:, 1]) - target).square().mean()
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        self._updates += 1
        if self._updates % self._target_interval == 0:
            self._target.load_state_dict(self.network.state_dict())


def _ratio(network: torch.nn.Module, states: Tensor) -> Tensor:
    return torch.nn.functional.softplus(network(states).squeeze(-1) + UNIT_BIAS)
