"""Stacks of the newest frames, as the acting network sees them."""

from __future__ import annotations

import numpy as np

from envs.stream import EnvSpec


class FrameStack:
    """The newest frames of N streams, oldest first: [N, stack * C, H, W] uint8; what precedes a game's start is zero.

    Channels are last in memory, as convolutions want them.
    """

    def __init__(self, spec: EnvSpec, num_envs: int):
        self._channels = spec.frame_shape[0]
        depth, height, width = spec.observation_shape
        self._memory = np.zeros((num_envs, height, width, depth), dtype=np.uint8)
        self.array = np.moveaxis(self._memory, -1, 1)

    def push(self, frames: np.ndarray, new_game: np.ndarray) -> np.ndarray:
        """Appends `frames` [N, C, H, W], forgetting first what came before where `new_game` [N]; returns the stacks."""
        c = self._channels
        # All bytes move on at once: into a pixel's newest place moves another pixel's oldest, which is then written over.
        memory = self._memory.reshape(-1)
        memory[:-c] = memory[c:]
        if new_game.any():
            self._memory[new_game] = 0
        self.array[:, -c:] = frames
        return self.array
