"""Distributional Reverse TD with a neural network: replay buffer, target network and importance weights."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from retrospective.finite_mdp import Array, Numbers
from retrospective.quantile_td import quantile_huber_gradient


class ReplayBuffer:
    """Ring buffer of the last `capacity` transitions: two states and some numbers each, by default three."""

    def __init__(self, capacity: int, state_size: int, num_scalars: int = 3):
        self._states = np.zeros((capacity, 2, state_size), dtype=np.float32)  # S_{t-1}, S_t
        self._scalars = np.zeros((capacity, num_scalars), dtype=np.float32)
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, len(self._states))

    def add(self, s_tm1: Array, s_t: Array, scalars: Array) -> None:
        """Add transitions, overwriting the oldest: states [n, F], scalars [n, K]."""
        rows = np.arange(self._added, self._added + len(s_t)) % len(self._states)
        self._states[rows, 0], self._states[rows, 1], self._scalars[rows] = s_tm1, s_t, scalars
        self._added += len(s_t)

    def sample(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """States (S_{t-1}, S_t) [size, 2, F] and scalars [size, K], sampled uniformly with replacement."""
        rows = rng.integers(len(self), size=size)
        return torch.from_numpy(self._states[rows]), torch.from_numpy(self._scalars[rows])


class NeuralQuantileTD:
    """Quantiles q_i(s) of the reverse return, by quantile regression (Dabney et al. 2018) on minibatches from a replay buffer.

    q_i(S_t) regresses on R_t + gamma_t q_j(S_{t-1}) for all j, weighted by the importance weight `weight` (off-policy: rho).
    q_j comes from a target network, synchronised every `target_interval` updates; with `target_syncs` only that many times,
    after which the targets are fixed and learning cannot diverge.
    """

    def __init__(
        self,
        state_size: int,
        num_quantiles: int = 20,
        hidden: Sequence[int] = (64, 64),
        learning_rate: float = 5e-3,
        capacity: int = 10_000,
        batch_size: int = 128,
        target_interval: int = 100,
        kappa: float = 1.0,
        seed: int = 0,
        target_syncs: int | None = None,
    ):
        if capacity < batch_size:
            raise ValueError(f"the capacity of the replay buffer must be at least the batch size {batch_size}, not {capacity}")
        self._rng = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = perceptron((state_size, *hidden, num_quantiles))
        self._target = copy.deepcopy(self.network).requires_grad_(False)
        self._optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate, fused=True)
        self._replay = ReplayBuffer(capacity, state_size)
        self._batch_size = batch_size
        self._target_interval = target_interval
        self._kappa = kappa
        self._last_sync = math.inf if target_syncs is None else target_syncs * target_interval
        self._updates = 0

    @torch.inference_mode()
    def quantiles(self, state: Array) -> Array:
        """Quantiles [..., N] at the states [..., F]."""
        return self.network(torch.as_tensor(state, dtype=torch.float32)).double().numpy()

    def observe(self, s_tm1: Array, s_t: Array, reward: Numbers, discount: Numbers, weight: Numbers = 1.0) -> None:
        """Add the transitions of one stream, or of many [streams, ...], to the replay buffer."""
        s_tm1, s_t = np.atleast_2d(s_tm1), np.atleast_2d(s_t)
        scalars = np.stack([np.broadcast_to(x, len(s_t)) for x in (reward, discount, weight)], axis=-1)
        if not (np.isfinite(scalars).all() and np.isfinite(s_tm1).all() and np.isfinite(s_t).all()):
            raise ValueError(f"a transition is not finite: reward, discount, weight {scalars.tolist()}")
        self._replay.add(s_tm1, s_t, scalars)

    def update(self, density_ratio: Callable[[Tensor], Tensor] | None = None) -> None:
        """One step of Adam on a minibatch; nothing before the replay buffer holds one.

        `density_ratio` maps states S_{t-1} [B, F] to tau [B], a second factor of the importance weights.

        The loss is the mean over the minibatch of weight * (quantile Huber loss, averaged over i and j). Its gradient with
        respect to the outputs is computed in closed form, twice as fast as automatic differentiation of the N^2 pairs.
        """
        if len(self._replay) < self._batch_size:
            return
        states, scalars = self._replay.sample(self._batch_size, self._rng)
        reward, discount, weight = scalars.unsqueeze(-1).unbind(1)
        prediction = self.network(states[:, 1])
        with torch.no_grad():
            if density_ratio is not None:
                weight = weight * density_ratio(states[:, 0]).unsqueeze(-1)
            target = reward + discount * self._target(states[:, 0])
        slope = torch.from_numpy(quantile_huber_gradient(prediction.detach().numpy(), target.numpy(), self._kappa))
        self._optimiser.zero_grad()
        prediction.backward(weight * slope / prediction.numel())
        self._optimiser.step()
        self._updates += 1
        if self._updates % self._target_interval == 0 and self._updates <= self._last_sync:
            self._target.load_state_dict(self.network.state_dict())


def perceptron(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers of the given sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
