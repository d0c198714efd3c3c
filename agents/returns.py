"""Returns as pure functions of time-major tensors [T, B, ...].

Suffixes: a transition leaves the state at time t - 1 (`_tm1`) and enters the state at time t (`_t`). Row i of every argument
belongs to the same transition i. Termination is expressed by a discount of 0 alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """V-trace targets and advantages."""

    targets: Tensor
    """[T, B] v_{t-1}, the regression target of the value V_{t-1}."""
    advantages: Tensor
    """[T, B] rho_{t-1} (r_t + gamma_t v_t - V_{t-1}), the weight of the policy gradient."""


def vtrace(
    log_rho_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    v_tm1: Tensor,
    bootstrap: Tensor,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """V-trace (Espeholt et al. 2018, equation 1), by recursion backwards in time.

    v_{t-1} - V_{t-1} = delta_t + gamma_t c_{t-1} (v_t - V_t),  delta_t = rho_{t-1} (r_t + gamma_t V_t - V_{t-1}),
    rho_{t-1} = min(rho_clip, pi/mu),  c_{t-1} = lambda min(c_clip, pi/mu)  (lambda: the paper's remark 2).

    Shapes: `log_rho_tm1` = log pi/mu, `r_t`, `discount_t`, `v_tm1` [T, B]; `bootstrap` [B] is the value of the last state.
    """
    ratio = log_rho_tm1.exp()
    rho_tm1, c_tm1 = ratio.clamp(max=rho_clip), lambda_ * ratio.clamp(max=c_clip)
    v_t = torch.cat([v_tm1[1:], bootstrap[None]])
    delta_t = rho_tm1 * (r_t + discount_t * v_t - v_tm1)
    decay_t = discount_t * c_tm1
    corrections = [torch.zeros_like(bootstrap)]
    for i in range(len(v_tm1) - 1, -1, -1):
        corrections.append(delta_t[i] + decay_t[i] * corrections[-1])
    targets_tm1 = v_tm1 + torch.stack(corrections[:0:-1])
    targets_t = torch.cat([targets_tm1[1:], bootstrap[None]])
    return VTrace(targets_tm1, rho_tm1 * (r_t + discount_t * targets_t - v_tm1))


def lambda_returns(c_t: Tensor, discount_t: Tensor, v_t: Tensor, lambda_t: Tensor) -> Tensor:
    """G_{t-1} = c_t + gamma_t ((1 - lambda_t) v_t + lambda_t G_t), by recursion backwards in time.

    The last transition bootstraps from `v_t` alone, whatever its lambda. A lambda of 0 cuts the trace: that transition
    bootstraps as well.

    Shapes: all [T, B, ...], broadcast against each other after the first axis.
    """
    returns = [v_t[-1]]
    for i in range(len(c_t) - 1, -1, -1):
        returns.append(c_t[i] + discount_t[i] * torch.lerp(v_t[i], returns[-1], lambda_t[i].expand_as(v_t[i])))
    return torch.stack(returns[:0:-1])


def reverse_lambda_returns(c_t: Tensor, discount_tm1: Tensor, v_tm1: Tensor, lambda_tm1: Tensor) -> Tensor:
    """G_t = c_t + gamma_{t-1} ((1 - lambda_{t-1}) v_{t-1} + lambda_{t-1} G_{t-1}), by recursion forwards in time.

    The lambda form of the reverse return (Zhang et al. 2020). It equals `lambda_returns` of the time-reversed arguments; the
    first transition bootstraps from `v_tm1` alone. Shapes: as for `lambda_returns`.
    """
    return lambda_returns(*(x.flip(0) for x in (c_t, discount_tm1, v_tm1, lambda_tm1))).flip(0)
