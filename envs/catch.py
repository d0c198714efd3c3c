"""Catch: move a paddle under a falling ball. Learnt in seconds."""

from __future__ import annotations

import numpy as np

from envs.stream import EnvSpec, Games, RawStep

ROWS = COLUMNS = 8
CELL = 5
"""Side of a cell in pixels; every torso accepts 40 x 40 frames."""


class Catch(Games):
    """N games of Catch in NumPy. Actions: left, stay, right. A game has ROWS - 1 steps; its score is 1 (caught) or -1."""

    optimal_score = 1.0

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.spec = EnvSpec(num_actions=3, frame_shape=(1, ROWS * CELL, COLUMNS * CELL), stack=1, frames_per_step=1)
        self._row = np.zeros(num_envs, dtype=np.int64)
        self._ball = np.zeros(num_envs, dtype=np.int64)
        self._paddle = np.zeros(num_envs, dtype=np.int64)

    def reset(self, mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        for env in np.flatnonzero(mask):
            self._ball[env], self._paddle[env] = np.random.default_rng(int(seeds[env])).integers(COLUMNS, size=2)
        self._row[mask] = 0
        return self._frames()

    def step(self, actions: np.ndarray, running: np.ndarray) -> RawStep:
        self._paddle = np.clip(self._paddle + np.where(running, actions - 1, 0), 0, COLUMNS - 1)
        self._row += running
        landed = running & (self._row == ROWS - 1)
        reward = np.where(landed, np.where(self._ball == self._paddle, 1.0, -1.0), 0.0)
        never = np.zeros(self.num_envs, dtype=bool)
        return RawStep(self._frames(), reward, terminated=landed, truncated=never, life_lost=never)

    def close(self) -> None:
        pass

    def _frames(self) -> np.ndarray:
        board = np.zeros((self.num_envs, ROWS, COLUMNS), dtype=np.uint8)
        envs = np.arange(self.num_envs)
        board[envs, ROWS - 1, self._paddle] = 128
        board[envs, np.minimum(self._row, ROWS - 1), self._ball] = 255
        return board.repeat(CELL, axis=1).repeat(CELL, axis=2)[:, None]
