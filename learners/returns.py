"""Returns as pure functions of time-major arrays [T, B]; termination lives in the discount alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """V-trace's targets, detached."""

    targets: Tensor
    """[T, B] v_s, what the value regresses on."""
    advantages: Tensor
    """[T, B] rho_s (r_s + gamma_s v_{s+1} - V_s), what weighs the policy gradient."""


def vtrace(
    log_rho: Tensor,
    reward: Tensor,
    discount: Tensor,
    value: Tensor,
    bootstrap: Tensor,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """V-trace (Espeholt et al. 2018, equation 1), computed backwards in time.

    v_s - V_s = delta_s + gamma_s c_s (v_{s+1} - V_{s+1}),  delta_s = rho_s (r_s + gamma_s V_{s+1} - V_s),
    rho_s = min(rho_clip, pi/mu), c_s = lambda min(c_clip, pi/mu) (lambda: the paper's remark 2).

    Shapes: `log_rho`, `reward`, `discount`, `value` [T, B]; `bootstrap` [B] is the value after the last step.
    """
    with torch.no_grad():
        ratio = log_rho.exp()
        rho, c = ratio.clamp(max=rho_clip), lambda_ * ratio.clamp(max=c_clip)
        next_value = torch.cat([value[1:], bootstrap[None]])
        delta = rho * (reward + discount * next_value - value)
        correction = torch.zeros_like(value)
        carry = torch.zeros_like(bootstrap)
        for s in range(len(value) - 1, -1, -1):
            carry = delta[s] + discount[s] * c[s] * carry
            correction[s] = carry
        targets = value + correction
        next_target = torch.cat([targets[1:], bootstrap[None]])
        return VTrace(targets, rho * (reward + discount * next_target - value))
