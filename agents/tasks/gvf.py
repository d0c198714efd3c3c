"""General value functions: what will follow?"""

from __future__ import annotations

import torch
from torch import Tensor

from agents.batch import Batch
from agents.returns import lambda_returns
from agents.tasks.question_task import QuestionTask


class GVF(QuestionTask):
    """The answer at s_t regresses on G_t = c(s_{t+1}) + gamma(s_{t+1}) ((1 - lambda) v(s_{t+1}) + lambda G_{t+1})."""

    def targets(self, cumulant: Tensor, discount: Tensor, answer: Tensor, batch: Batch) -> tuple[Tensor, slice, Tensor]:
        entered = cumulant[1:] * (1 - discount[1:]) if self._unit else cumulant[1:]
        inside = (batch.valid & ~batch.first[1:])[..., None]  # The state that the step enters is of the same episode.
        goes_on = torch.cat([batch.valid[1:], torch.zeros_like(batch.valid[:1])])[..., None]
        returns = lambda_returns(
            entered * inside,
            discount[1:] * (batch.discount[..., None] * inside),
            answer[1:],
            self._lambda * goes_on.to(answer.dtype),
        )
        return returns, slice(None, -1), batch.valid
