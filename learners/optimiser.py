"""Optimisers of theta with their adjoints: RMSProp as TensorFlow defines it, and Adam.

Both clip the gradient by its global norm first, and both have epsilon inside the root: a step is then smooth in the gradient
even where the second moment is zero, so that the meta-gradient through it is finite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from configs.train import LearnerConfig

Moments = dict[Literal["first_moment", "moment"], list[Tensor]]
"""One tensor per parameter; `moment` is the second moment."""


@dataclass(frozen=True)
class OptimiserState:
    """What an optimiser carries from one update to the next; `Optimiser.step` changes it in place."""

    moments: Moments
    updates: Tensor | None = None
    """Number of updates made, where the optimiser depends on it."""

    def clone(self) -> OptimiserState:
        moments: Moments = {kind: [m.clone() for m in values] for kind, values in self.moments.items()}
        return OptimiserState(moments, None if self.updates is None else self.updates.clone())

    def named(self, names: Sequence[str]) -> dict[str, Tensor]:
        """The tensors themselves by name, given the names of the parameters."""
        found = {f"{kind}.{name}": m for kind, ms in self.moments.items() for name, m in zip(names, ms, strict=True)}
        return found if self.updates is None else found | {"optimiser_updates": self.updates}


class Optimiser(ABC):
    """An update rule as pure functions of parameters, gradients and state."""

    clip_norm: float

    @abstractmethod
    def init(self, parameters: Sequence[Tensor]) -> OptimiserState:
        """The state before the first update."""

    @abstractmethod
    def step(
        self, parameters: list[Tensor], gradients: list[Tensor], state: OptimiserState, learning_rate: float, norm: Tensor
    ) -> None:
        """One update of parameters and state in place; `norm` is the gradients' global norm."""

    @abstractmethod
    def adjoint(
        self,
        gradients: list[Tensor],
        state: OptimiserState,
        learning_rate: float,
        theta_bar: list[Tensor],
        moments_bar: Moments,
    ) -> tuple[list[Tensor], Moments]:
        """`step` in reverse: from dJ/dtheta' and dJ/dm' after it to dJ/dg and dJ/dm before it; `state` is that before it.

        dJ/dtheta before the step is theta'_bar plus what g_bar says about theta.
        """

    def clip(self, gradients: list[Tensor], norm: Tensor) -> list[Tensor]:
        """h = g min(1, clip_norm / |g|)"""
        return list(torch._foreach_mul(gradients, (self.clip_norm / norm).clamp(max=1.0)))

    def clip_adjoint_(self, gradients: list[Tensor], norm: Tensor, clipped_bar: list[Tensor]) -> list[Tensor]:
        """Replace h_bar by g_bar: where h = C g/|g|, it is C/|g| times the part of h_bar that is orthogonal to g."""
        if norm > self.clip_norm:
            along = sum((g * bar).sum() for g, bar in zip(gradients, clipped_bar, strict=True)) / norm**2
            torch._foreach_sub_(clipped_bar, torch._foreach_mul(gradients, along))
            torch._foreach_mul_(clipped_bar, self.clip_norm / norm)
        return clipped_bar


@dataclass(frozen=True)
class RMSProp(Optimiser):
    """h = clip(g),  m <- decay m + (1 - decay) h^2,  theta <- theta - lr h / sqrt(m + eps)."""

    decay: float
    eps: float
    clip_norm: float
    initial_moment: float = 0.0

    @torch.no_grad()
    def init(self, parameters: Sequence[Tensor]) -> OptimiserState:
        return OptimiserState({"moment": [torch.full_like(parameter, self.initial_moment) for parameter in parameters]})

    @torch.no_grad()
    def step(
        self, parameters: list[Tensor], gradients: list[Tensor], state: OptimiserState, learning_rate: float, norm: Tensor
    ) -> None:
        moments, clipped = state.moments["moment"], self.clip(gradients, norm)
        torch._foreach_mul_(moments, self.decay)
        torch._foreach_addcmul_(moments, clipped, clipped, 1 - self.decay)
        scale = torch._foreach_add(moments, self.eps)
        torch._foreach_sqrt_(scale)
        torch._foreach_addcdiv_(parameters, clipped, scale, -learning_rate)

    @torch.no_grad()
    def adjoint(
        self,
        gradients: list[Tensor],
        state: OptimiserState,
        learning_rate: float,
        theta_bar: list[Tensor],
        moments_bar: Moments,
    ) -> tuple[list[Tensor], Moments]:
        """With r = m' + eps, theta' = theta - lr h r^(-1/2) gives

            m'_bar <- m'_bar + lr/2 h r^(-3/2) theta'_bar,
            h_bar = 2 (1 - decay) h m'_bar - lr r^(-1/2) theta'_bar,  m_bar = decay m'_bar.
        """  # fmt: skip
        norm = global_norm(gradients)
        clipped = self.clip(gradients, norm)
        after = torch._foreach_mul(state.moments["moment"], self.decay)
        torch._foreach_addcmul_(after, clipped, clipped, 1 - self.decay)
        torch._foreach_add_(after, self.eps)
        root = torch._foreach_sqrt(after)
        scaled_bar = torch._foreach_div(theta_bar, root)
        torch._foreach_mul_(scaled_bar, learning_rate)  # lr r^(-1/2) theta'_bar
        after_bar = torch._foreach_div(torch._foreach_mul(clipped, scaled_bar), after)
        torch._foreach_mul_(after_bar, 0.5)
        torch._foreach_add_(after_bar, moments_bar["moment"])
        clipped_bar = torch._foreach_mul(clipped, after_bar)
        torch._foreach_mul_(clipped_bar, 2 * (1 - self.decay))
        torch._foreach_sub_(clipped_bar, scaled_bar)
        torch._foreach_mul_(after_bar, self.decay)
        return self.clip_adjoint_(gradients, norm, list(clipped_bar)), {"moment": list(after_bar)}


@dataclass(frozen=True)
class Adam(Optimiser):
    """h = clip(g),  m <- b1 m + (1 - b1) h,  v <- b2 v + (1 - b2) h^2,  theta <- theta - lr m^ / sqrt(v^ + eps).

    m^ = m / (1 - b1^n) and v^ = v / (1 - b2^n) correct the bias of the n-th update. Kingma and Ba (2015) have epsilon outside
    the root; theirs corresponds to the root of this one.
    """

    beta1: float
    beta2: float
    eps: float
    clip_norm: float

    @torch.no_grad()
    def init(self, parameters: Sequence[Tensor]) -> OptimiserState:
        moments: Moments = {
            "first_moment": [torch.zeros_like(parameter) for parameter in parameters],
            "moment": [torch.zeros_like(parameter) for parameter in parameters],
        }
        return OptimiserState(moments, torch.tensor(0))

    @torch.no_grad()
    def step(
        self, parameters: list[Tensor], gradients: list[Tensor], state: OptimiserState, learning_rate: float, norm: Tensor
    ) -> None:
        assert state.updates is not None
        state.updates.add_(1)
        unbias1, unbias2 = self._unbias(state.updates)
        first, second = state.moments["first_moment"], state.moments["moment"]
        self._average(first, second, self.clip(gradients, norm))
        scale = torch._foreach_mul(second, unbias2)
        torch._foreach_add_(scale, self.eps)
        torch._foreach_sqrt_(scale)
        torch._foreach_addcdiv_(parameters, first, scale, -learning_rate * unbias1)

    @torch.no_grad()
    def adjoint(
        self,
        gradients: list[Tensor],
        state: OptimiserState,
        learning_rate: float,
        theta_bar: list[Tensor],
        moments_bar: Moments,
    ) -> tuple[list[Tensor], Moments]:
        """With c1 = 1/(1 - b1^n), c2 = 1/(1 - b2^n), r = c2 v' + eps, theta' = theta - lr c1 m' r^(-1/2) gives

            m'_bar <- m'_bar - lr c1 r^(-1/2) theta'_bar,
            v'_bar <- v'_bar + lr/2 c1 c2 m' r^(-3/2) theta'_bar,
            h_bar = (1 - b1) m'_bar + 2 (1 - b2) h v'_bar,  m_bar = b1 m'_bar,  v_bar = b2 v'_bar.
        """  # fmt: skip
        assert state.updates is not None
        unbias1, unbias2 = self._unbias(state.updates + 1)
        norm = global_norm(gradients)
        clipped = self.clip(gradients, norm)
        first, second = ([m.clone() for m in state.moments[kind]] for kind in ("first_moment", "moment"))
        self._average(first, second, clipped)
        torch._foreach_mul_(second, unbias2)
        torch._foreach_add_(second, self.eps)  # r
        scaled_bar = torch._foreach_div(theta_bar, torch._foreach_sqrt(second))
        torch._foreach_mul_(scaled_bar, learning_rate * unbias1)  # lr c1 r^(-1/2) theta'_bar
        second_bar = torch._foreach_div(torch._foreach_mul(first, scaled_bar), second)
        torch._foreach_mul_(second_bar, 0.5 * unbias2)
        torch._foreach_add_(second_bar, moments_bar["moment"])
        first_bar = torch._foreach_sub(moments_bar["first_moment"], scaled_bar)
        clipped_bar = torch._foreach_mul(clipped, second_bar)
        torch._foreach_mul_(clipped_bar, 2 * (1 - self.beta2))
        torch._foreach_add_(clipped_bar, first_bar, alpha=1 - self.beta1)
        torch._foreach_mul_(first_bar, self.beta1)
        torch._foreach_mul_(second_bar, self.beta2)
        before: Moments = {"first_moment": list(first_bar), "moment": list(second_bar)}
        return self.clip_adjoint_(gradients, norm, list(clipped_bar)), before

    def _unbias(self, update: Tensor) -> tuple[float, float]:
        """Factors that correct the bias of both moments after the n-th update."""
        return 1 / (1 - self.beta1 ** update.item()), 1 / (1 - self.beta2 ** update.item())

    def _average(self, first: list[Tensor], second: list[Tensor], clipped: list[Tensor]) -> None:
        torch._foreach_mul_(first, self.beta1)
        torch._foreach_add_(first, clipped, alpha=1 - self.beta1)
        torch._foreach_mul_(second, self.beta2)
        torch._foreach_addcmul_(second, clipped, clipped, 1 - self.beta2)


def make_optimiser(config: LearnerConfig) -> Optimiser:
    """The one that --optimiser names."""
    if config.optimiser == "adam":
        return Adam(config.adam_beta1, config.adam_beta2, config.adam_eps, config.clip_norm)
    return RMSProp(config.rmsprop_decay, config.rmsprop_eps, config.clip_norm, config.rmsprop_initial_moment)


@torch.no_grad()
def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients))))


def annealed(learning_rate: float, frame: int, total_frames: int) -> float:
    """Linearly from `learning_rate` at frame 0 to 0 at `total_frames`."""
    return learning_rate * max(0.0, 1.0 - frame / total_frames)


def warmed_up(learning_rate: float, update: int, updates: int) -> float:
    """Linearly from nothing to `learning_rate` at the last of the first `updates`; `update` counts from 0.

    RMSProp's second moment begins with a guess. Where gradients are larger than it says, the n-th step is 1/sqrt(1 - decay^n)
    times the learning rate: ten times at the first update, 1.3 times at the hundredth, when decay is 0.99.
    """
    return learning_rate * min(1.0, (update + 1) / max(1, updates))
