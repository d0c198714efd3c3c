"""RMSProp as TensorFlow defines it, with the gradient clipped by its global norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RMSPropConstants:
    decay: float
    eps: float
    clip_norm: float


@torch.no_grad()
def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients))))


@torch.no_grad()
def rmsprop_step(
    parameters: list[Tensor],
    gradients: list[Tensor],
    moments: list[Tensor],
    learning_rate: float,
    norm: Tensor,
    constants: RMSPropConstants,
) -> None:
    """One update in place, `norm` being the gradients' global norm.

    g <- g min(1, clip / |g|),  m <- decay m + (1 - decay) g^2,  theta <- theta - lr g / sqrt(m + eps).
    Epsilon stands inside the root, so the step is smooth in g even where m is zero.
    """
    clip = (constants.clip_norm / norm).clamp(max=1.0)
    clipped = torch._foreach_mul(gradients, clip)
    torch._foreach_mul_(moments, constants.decay)
    torch._foreach_addcmul_(moments, clipped, clipped, 1 - constants.decay)
    scale = torch._foreach_add(moments, constants.eps)
    torch._foreach_sqrt_(scale)
    torch._foreach_addcdiv_(parameters, clipped, scale, -learning_rate)


@torch.no_grad()
def rmsprop_adjoint(
    gradients: list[Tensor],
    moments: list[Tensor],
    learning_rate: float,
    constants: RMSPropConstants,
    theta_bar: list[Tensor],
    moment_bar: list[Tensor],
) -> tuple[list[Tensor], list[Tensor]]:
    """`rmsprop_step` in reverse: from dJ/dtheta' and dJ/dm' after it to dJ/dg and dJ/dm before it.

    `moments` are those before the step. With h the clipped gradient and r = m' + eps, theta' = theta - lr h r^(-1/2) gives
        m'_bar <- m'_bar + lr/2 h r^(-3/2) theta'_bar,
        h_bar = 2 (1 - decay) h m'_bar - lr r^(-1/2) theta'_bar,  m_bar = decay m'_bar.
    Where the clip is active, h = C g/|g|, g_bar is C/|g| times the part of h_bar that is orthogonal to g.
    dJ/dtheta before the step is theta'_bar plus what g_bar says about theta.
    """
    norm = global_norm(gradients)
    clip = (constants.clip_norm / norm).clamp(max=1.0)
    clipped = torch._foreach_mul(gradients, clip)
    after = torch._foreach_mul(moments, constants.decay)
    torch._foreach_addcmul_(after, clipped, clipped, 1 - constants.decay)
    torch._foreach_add_(after, constants.eps)
    root = torch._foreach_sqrt(after)
    scaled_bar = torch._foreach_div(theta_bar, root)
    torch._foreach_mul_(scaled_bar, learning_rate)  # lr r^(-1/2) theta'_bar
    after_bar = torch._foreach_div(torch._foreach_mul(clipped, scaled_bar), after)
    torch._foreach_mul_(after_bar, 0.5)
    torch._foreach_add_(after_bar, moment_bar)
    gradient_bar = torch._foreach_mul(clipped, after_bar)
    torch._foreach_mul_(gradient_bar, 2 * (1 - constants.decay))
    torch._foreach_sub_(gradient_bar, scaled_bar)
    if norm > constants.clip_norm:
        along = sum((g * bar).sum() for g, bar in zip(gradients, gradient_bar, strict=True)) / norm**2
        torch._foreach_sub_(gradient_bar, torch._foreach_mul(gradients, along))
        torch._foreach_mul_(gradient_bar, clip)
    torch._foreach_mul_(after_bar, constants.decay)
    return list(gradient_bar), list(after_bar)


def annealed(learning_rate: float, frame: int, total_frames: int) -> float:
    """Linearly from `learning_rate` at frame 0 to 0 at `total_frames`."""
    return learning_rate * max(0.0, 1.0 - frame / total_frames)


def warmed_up(learning_rate: float, update: int, updates: int) -> float:
    """Linearly from nothing to `learning_rate` at the last of the first `updates`; `update` counts from 0.

    RMSProp's second moment begins with a guess. Where gradients are larger than it says, the n-th step is 1/sqrt(1 - decay^n)
    times the learning rate: ten times at the first update, 1.3 times at the hundredth, when decay is 0.99.
    """
    return learning_rate * min(1.0, (update + 1) / max(1, updates))
