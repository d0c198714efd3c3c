"""A learner's batch, and its stacked observations rebuilt from single frames."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from envs.fields import FIELDS, StepFields


@dataclass(frozen=True)
class Batch(StepFields[Tensor]):
    """B unrolls of T steps; see `StepFields` for shapes and meanings."""

    version: Tensor
    """[B] int64, of the weights that acted."""

    def to(self, device: torch.device) -> Batch:
        if device.type == "cpu":
            return self
        return Batch(**{field.name: getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)})

    @property
    def steps(self) -> int:
        """Environment steps in the batch."""
        return self.action.numel()

    def observations(self) -> Tensor:
        """All stacked observations [T + 1, B, S * C, H, W] uint8, channels last in memory.

        An observation holds nothing from before its game began: that history is zero, as it is for the acting network.
        """
        time, batch, channels, height, width = self.frames.shape
        depth = self.stack.shape[1] // channels
        history = self.stack.view(batch, depth, channels, height, width).transpose(0, 1)
        film = torch.cat([history, self.frames]).movedim(2, -1)  # [S + T, B, H, W, C]
        stacked = torch.cat([film[lag : lag + time + 1] for lag in range(depth)], dim=-1)
        for t, b in (~self.valid).nonzero().tolist():
            # Observation t + 1 is the first of a game: it and the next ones see nothing older than it.
            for later in range(t + 1, min(t + depth, time + 1)):
                stacked[later, b, :, :, : (depth - (later - t)) * channels] = 0
        return stacked.movedim(-1, 2)


def env_axis(name: str) -> int:
    """Axis of the environments in a field of a batch."""
    return FIELDS[name].env_axis if name in FIELDS else 0
