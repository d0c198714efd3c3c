"""Reverse general value functions (Zhang, Veeriah, Whiteson 2020): what must have happened before?"""

from __future__ import annotations

import torch
from torch import Tensor

from agents.batch import Batch
from agents.returns import reverse_lambda_returns
from agents.tasks.question_task import QuestionTask


class ReverseGVF(QuestionTask):
    """The answer at s_t regresses on G_t = c(s_t) + gamma(s_{t-1}) ((1 - lambda) v(s_{t-1}) + lambda G_{t-1}).

    At the first state of an episode G is 0, for nothing has happened yet. Each state is judged once: as the one that a step of
    the unroll enters. The very first observation of the unroll was so judged in the unroll before, and is bootstrapped from.
    """

    def targets(self, cumulant: Tensor, discount: Tensor, answer: Tensor, batch: Batch) -> tuple[Tensor, slice, Tensor]:
        entered = cumulant[1:] * (1 - discount[:-1]) if self._unit else cumulant[1:]
        inside = ~batch.first[1:, :, None]  # The step enters a state of the same episode.
        has_past = ~batch.first[:-1, :, None]  # The state that the step leaves has something behind it.
        returns = reverse_lambda_returns(
            entered * inside,
            discount[:-1] * (inside & has_past),
            answer[:-1],
            torch.full_like(batch.reward, self._lambda, dtype=answer.dtype)[..., None],
        )
        return returns, slice(1, None), torch.ones_like(batch.valid)
