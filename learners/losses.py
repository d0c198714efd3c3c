"""IMPALA's loss per step (Espeholt et al. 2018); the objective masks and sums it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from agents.batch import Batch
from agents.returns import VTrace, vtrace
from configs.train import LearnerConfig


class ImpalaLoss(NamedTuple):
    """Each [T, B]."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    """Entropy of the policy, to be maximised."""
    rho: Tensor
    """pi / mu of the action taken, unclipped, detached."""
    vtrace: VTrace


def log_probabilities(logits: Tensor) -> Tensor:
    return logits - logits.logsumexp(-1, keepdim=True)


def impala_loss(
    logits: Tensor, value: Tensor, fixed_logits: Tensor, fixed_value: Tensor, batch: Batch, config: LearnerConfig
) -> ImpalaLoss:
    """Policy gradient with V-trace advantages, squared error to V-trace targets, and entropy.

    policy_s = -log pi(a_s) A_s,  value_s = (v_s - V_s)^2 / 2,  entropy_s = -sum_a pi(a) log pi(a).

    The targets v and A are made from `fixed_logits` [T + 1, B, A] and `fixed_value` [T + 1, B], which have the values of
    `logits` and `value` and take no gradient.
    """
    log_pi = log_probabilities(logits[:-1])
    taken = batch.action.unsqueeze(-1)
    log_pi_a = log_pi.gather(-1, taken).squeeze(-1)
    fixed_log_pi_a = log_probabilities(fixed_logits[:-1]).gather(-1, taken).squeeze(-1)
    log_mu_a = log_probabilities(batch.logits).gather(-1, taken).squeeze(-1)
    # Where an action was ignored the weight is 0, so v_s = V_s there: a truncated game bootstraps from its last value.
    log_rho = (fixed_log_pi_a - log_mu_a).masked_fill(~batch.valid, -torch.inf)
    bound = config.reward_clip
    targets = vtrace(
        log_rho,
        batch.reward.clamp(-bound, bound) if bound else batch.reward,
        config.discount * batch.discount,
        fixed_value[:-1],
        fixed_value[-1],
        config.rho_clip,
        config.c_clip,
        config.vtrace_lambda,
    )
    return ImpalaLoss(
        policy=-log_pi_a * targets.advantages,
        value=0.5 * (targets.targets - value[:-1]) ** 2,
        entropy=-(log_pi.exp() * log_pi).sum(-1),
        rho=log_rho.detach().exp(),
        vtrace=targets,
    )
