"""MuJoCo's Reacher as a continuing stream (Zhang et al. 2020), for reverse returns.

An episode ends when the fingertip is within 0.02 of the target or at the time limit, if there is one. The next step ignores its
action and resets arm and target; its reward and its discount are 0, so that the reverse return restarts. All other steps have
a discount of 1.
"""

from __future__ import annotations

import gymnasium
import numpy as np

from retrospective.finite_mdp import Array

REACHED = 0.02
STATE_SIZE, ACTION_SIZE = 10, 2
TO_TARGET = slice(8, 10)
"""Entries of an observation with the vector from the target to the fingertip."""


class ReacherStreams:
    """N independent streams, one per seed; a `time_limit` of 0 means none."""

    def __init__(self, seeds: list[int], time_limit: int = 0):
        self._limit = time_limit or np.inf
        self._steps = np.zeros(len(seeds))
        self._envs = [gymnasium.make("Reacher-v5", disable_env_checker=True).unwrapped for _ in seeds]
        self.state: Array = np.stack([env.reset(seed=seed)[0] for env, seed in zip(self._envs, seeds, strict=True)])

    def step(self, actions: Array) -> tuple[Array, Array, Array]:
        """Next states [N, 10], rewards [N] and discounts [N]; actions [N, 2] are clipped to [-1, 1]."""
        over = self.reached(self.state) | (self._steps >= self._limit)
        state, reward = np.empty_like(self.state), np.zeros(len(self._envs))
        for i, (env, action) in enumerate(zip(self._envs, np.clip(actions, -1, 1), strict=True)):
            if over[i]:
                state[i] = env.reset()[0]
            else:
                state[i], reward[i], _, _, _ = env.step(action)
        self.state = state
        self._steps = np.where(over, 0, self._steps + 1)
        return state, reward, np.where(over, 0.0, 1.0)

    @staticmethod
    def reached(state: Array) -> np.ndarray:
        """Whether the fingertip is at the target, [...], for states [..., 10]."""
        return np.linalg.norm(state[..., TO_TARGET], axis=-1) < REACHED

    def close(self) -> None:
        for env in self._envs:
            env.close()
