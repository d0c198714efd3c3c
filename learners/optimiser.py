"""RMSProp as TensorFlow defines it, with the gradient clipped by its global norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RMSPropConstants:
    decay: float
    eps: float
    clip_norm: float


def global_norm(gradients: list[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


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


def annealed(learning_rate: float, frame: int, total_frames: int) -> float:
    """Linearly from `learning_rate` at frame 0 to 0 at `total_frames`."""
    return learning_rate * max(0.0, 1.0 - frame / total_frames)
