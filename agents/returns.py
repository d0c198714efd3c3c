"""Returns as pure functions of time-major arrays [T, B, ...]; termination lives in the discount alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """V-trace's targets."""

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
    ratio = log_rho.exp()
    rho, c = ratio.clamp(max=rho_clip), lambda_ * ratio.clamp(max=c_clip)
    next_value = torch.cat([value[1:], bootstrap[None]])
    delta = rho * (reward + discount * next_value - value)
    decay = discount * c
    corrections = [torch.zeros_like(bootstrap)]
    for s in range(len(value) - 1, -1, -1):
        corrections.append(delta[s] + decay[s] * corrections[-1])
    targets = value + torch.stack(corrections[:0:-1])
    next_target = torch.cat([targets[1:], bootstrap[None]])
    return VTrace(targets, rho * (reward + discount * next_target - value))


def lambda_returns(cumulant: Tensor, discount: Tensor, value: Tensor, trace: Tensor) -> Tensor:
    """G_t = c_t + gamma_t ((1 - trace_t) v_t + trace_t G_{t+1}), computed backwards in time.

    Index t is a transition: `cumulant[t]`, `discount[t]` and `value[t]` are those of the state that it enters. `trace` is
    lambda, or 0 where the return must not reach further; the last step always takes its value.

    Shapes: all [T, B, ...], broadcast against each other after the first axis.
    """
    returns = [value[-1]]
    for t in range(len(cumulant) - 1, -1, -1):
        returns.append(cumulant[t] + discount[t] * torch.lerp(value[t], returns[-1], trace[t].expand_as(value[t])))
    return torch.stack(returns[:0:-1])


def reverse_lambda_returns(cumulant: Tensor, discount: Tensor, value: Tensor, trace: Tensor) -> Tensor:
    """G_t = c_t + gamma_{t-1} ((1 - trace_{t-1}) v_{t-1} + trace_{t-1} G_{t-1}), computed forwards in time.

    Index t is a transition: `discount[t]` and `value[t]` are those of the state that it leaves, `cumulant[t]` that of the state
    that it enters, and the result [t] belongs to the latter. It is the forward return of the same data, read backwards.
    """
    return lambda_returns(*(x.flip(0) for x in (cumulant, discount, value, trace))).flip(0)
