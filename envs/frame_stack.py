"""Stacks of the newest frames, as the acting network sees them."""

from __future__ import annotations

import numpy as np

from envs.stream import EnvSpec


class FrameStack:
    """The newest frames of N streams, oldest first: [N, stack * C, H, W] uint8; what precedes a game's start is zero."""

    def __init__(self, spec: EnvSpec, num_envs: int):
        self._channels = spec.frame_shape[0]
        self.array = np.zeros((num_envs, *spec.observation_shape), dtype=np.uint8)

    def push(self, frames: np.ndarray, new_game: np.ndarray) -> np.ndarray:
        """Appends `frames` [N, C, H, W], forgetting first what came before where `new_game` [N]; returns the stacks."""
        c = self._channels
        self.array[:, :-c] = self.array[:, c:]
        if new_game.any():
            self.array[new_game] = 0
        self.array[:, -c:] = frames
        return self.array
