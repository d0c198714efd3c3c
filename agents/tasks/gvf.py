"""General value functions (Sutton et al. 2011) with questions c, gamma from the question network (Veeriah et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from agents.batch import Batch
from agents.returns import lambda_returns
from agents.tasks.question_task import QuestionTask


class GVF(QuestionTask):
    """The answer v(s_{t-1}) regresses on G_{t-1} = c(s_t) + gamma(s_t) ((1 - lambda) v(s_t) + lambda G_t).

    Where the transition enters another episode its cumulant and discount are 0; where it terminates its episode its discount
    is 0. A truncated episode bootstraps from v of its last state. Invalid steps are masked.
    """

    def targets(self, cumulant: Tensor, discount: Tensor, answer: Tensor, batch: Batch) -> tuple[Tensor, slice, Tensor]:
        c_t = cumulant[1:] * (1 - discount[1:]) if self._scale_cumulants else cumulant[1:]
        same_episode = (batch.valid & ~batch.first[1:])[..., None]
        continues = torch.cat([batch.valid[1:], torch.zeros_like(batch.valid[:1])])[..., None]
        returns = lambda_returns(
            c_t * same_episode,
            discount[1:] * (batch.discount[..., None] * same_episode),
            answer[1:],
            self._lambda * continues.to(answer.dtype),
        )
        return returns, slice(None, -1), batch.valid
