"""Frame stacking on the side of the actors."""

from __future__ import annotations

import numpy as np

from envs.stream import EnvSpec


class FrameStack:
    """Stacked observations of N streams [N, stack * C, H, W] uint8, oldest frame first; frames before a game's start are 0.

    The memory format is channels last, which convolutions prefer.
    """

    def __init__(self, spec: EnvSpec, num_envs: int):
        self._channels = spec.frame_shape[0]
        depth, height, width = spec.observation_shape
        self._memory = np.zeros((num_envs, height, width, depth), dtype=np.uint8)
        self.array = np.moveaxis(self._memory, -1, 1)

    def push(self, frames: np.ndarray, new_game: np.ndarray) -> np.ndarray:
        """Clear the stacks where `new_game` [N], append `frames` [N, C, H, W], and return all stacks."""
        c = self._channels
        # One shift of the flat memory is fastest. It moves the oldest byte of the next pixel into the newest of each; `frames`
        # overwrite that.
        memory = self._memory.reshape(-1)
        memory[:-c] = memory[c:]
        if new_game.any():
            self._memory[new_game] = 0
        self.array[:, -c:] = frames
        return self.array
