"""Reverse general value functions (Zhang, Veeriah, Whiteson 2020): expected discounted sums of past cumulants."""

from __future__ import annotations

import torch
from torch import Tensor

from agents.batch import Batch
from agents.returns import reverse_lambda_returns
from agents.tasks.question_task import QuestionTask


class ReverseGVF(QuestionTask):
    """The answer v(s_t) regresses on G_t = c(s_t) + gamma(s_{t-1}) ((1 - lambda) v(s_{t-1}) + lambda G_{t-1}).

    G is 0 at the first state of an episode, whose past is empty. The targets belong to observations 1 to T; observation 0, the
    last of the previous unroll, is only bootstrapped from.
    """

    def targets(self, cumulant: Tensor, discount: Tensor, answer: Tensor, batch: Batch) -> tuple[Tensor, slice, Tensor]:
        c_t = cumulant[1:] * (1 - discount[:-1]) if self._scale_cumulants else cumulant[1:]
        same_episode = ~batch.first[1:, :, None]
        has_past = ~batch.first[:-1, :, None]  # s_{t-1} is not the first state of its episode.
        returns = reverse_lambda_returns(
            c_t * same_episode,
            discount[:-1] * (same_episode & has_past),
            answer[:-1],
            torch.full_like(batch.reward, self._lambda, dtype=answer.dtype)[..., None],
        )
        return returns, slice(1, None), torch.ones_like(batch.valid)
