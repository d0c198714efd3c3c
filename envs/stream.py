"""Endless streams of steps from vectorised games; the one file that knows how episodes end and begin.

A *game* runs from reset to game over. A *learning episode* may be shorter: in the IMPALA protocol it ends with a life.
The step after a game over or a time limit ignores its action and answers with the first frame of the next game; it is
marked `valid=False`, so that the observation in which a truncated game ended still stands in the stream to bootstrap
from, and nothing is learnt from the jump between two games.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.errors import GameError


@dataclass(frozen=True)
class EnvSpec:
    """What an agent must know of a game to play it."""

    num_actions: int
    frame_shape: tuple[int, int, int]
    """Channels, height and width of one frame."""
    stack: int
    """How many successive frames make an observation."""
    frames_per_step: int
    """Environment frames that one action lasts (the action repeat)."""

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.frame_shape
        return (channels * self.stack, height, width)


class Games(ABC):
    """N games stepped together, without any rule for what follows an end."""

    spec: EnvSpec
    num_envs: int
    games_per_seed: int = 1
    """How many games in a row one seed decides: the first is started by `reset`, the others by `restart`."""

    @abstractmethod
    def reset(self, mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Starts the games where `mask` [N] is true, each from its entry of `seeds` [N]; returns frames [N, C, H, W]."""

    def restart(self, mask: np.ndarray) -> np.ndarray:
        """Starts the next games of the same seeds, which may depend on how many came before, not on how those went."""
        raise NotImplementedError(f"{type(self).__name__} starts every game from a seed of its own")

    @abstractmethod
    def step(self, actions: np.ndarray, running: np.ndarray) -> RawStep:
        """Plays one action in every running game; what is returned for the others has no meaning."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass
class RawStep:
    """What the games themselves report, each field [N, ...]."""

    frames: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    life_lost: np.ndarray


@dataclass
class Episode:
    """A finished game: its whole, unclipped score and its length in steps of the agent."""

    score: float
    steps: int


@dataclass
class StreamStep:
    """One step of N streams.

    `reward`, `discount` and `valid` belong to the action just taken; `frames`, `first` and `new_game` to what followed.
    """

    frames: np.ndarray
    """[N, C, H, W] uint8, the newest frame only."""
    reward: np.ndarray
    """[N] float32, raw."""
    discount: np.ndarray
    """[N] float32, 0 where the learning episode terminated (or the action was ignored), else 1."""
    valid: np.ndarray
    """[N] bool, False where the action was ignored because the game had already ended."""
    first: np.ndarray
    """[N] bool, True where the observation that followed opens a learning episode."""
    new_game: np.ndarray
    """[N] bool, True where the observation that followed opens a game."""
    episodes: list[Episode]
    """The games that ended with this step,"""
    ended: list[int]
    """and in which of the N environments."""


def episode_seed(stream_seed: int, env: int, number: int) -> int:
    """The `number`-th seed of environment `env`: a function of its arguments alone, so a game can be replayed."""
    return int(np.random.SeedSequence([stream_seed, env, number]).generate_state(1)[0] >> 1)


class EpisodeStream:
    """N endless streams of games.

    A game is its seed and the actions played since, so the stream's state is saved as those and restored by replay: that
    works for any game whose course is a function of its seed, and needs no help from the emulator.
    """

    def __init__(self, games: Games, seed: int):
        self.games = games
        self.spec = games.spec
        self.num_envs = n = games.num_envs
        self._seed = seed
        self._game = np.zeros(n, dtype=np.int64)
        self._running = np.zeros(n, dtype=bool)
        self._score = np.zeros(n, dtype=np.float64)
        self._history: list[bytearray] = [bytearray() for _ in range(n)]

    def reset(self) -> np.ndarray:
        """Starts every game; returns the first frames [N, C, H, W]."""
        return self._start(np.ones(self.num_envs, dtype=bool))

    def step(self, actions: np.ndarray) -> StreamStep:
        valid = self._running.copy()
        raw = self.games.step(actions, valid)
        for env in np.flatnonzero(valid & ~np.isfinite(raw.reward)):
            raise GameError(f"environment {env} gave the reward {raw.reward[env]} for action {actions[env]}")
        for env in np.flatnonzero(valid):
            self._history[env].append(int(actions[env]))
        self._score += np.where(valid, raw.reward, 0.0)
        terminated = raw.terminated & valid
        ended = terminated | (raw.truncated & valid)
        life_lost = raw.life_lost & valid

        ended_envs = np.flatnonzero(ended).tolist()
        episodes = [Episode(float(self._score[env]), len(self._history[env])) for env in ended_envs]
        self._running = valid & ~ended
        frames = raw.frames if valid.all() else self._start(~valid)
        return StreamStep(
            frames=frames,
            reward=np.where(valid, raw.reward, 0.0).astype(np.float32),
            discount=(valid & ~terminated & ~life_lost).astype(np.float32),
            valid=valid,
            first=~valid | (life_lost & ~ended),
            new_game=~valid,
            episodes=episodes,
            ended=ended_envs,
        )

    def close(self) -> None:
        self.games.close()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a later `load_state_dict` needs to bring the games back to where they are."""
        return {
            "seed": self._seed,
            "game": self._game.tolist(),
            "running": self._running.tolist(),
            "score": self._score.tolist(),
            "history": [history.hex() for history in self._history],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replays each game's actions from its seed, all games side by side so that they arrive together.

        Raises ValueError for a state that is not one of these games: an emulator trusts the actions it is given.
        """
        self._seed = int(state["seed"])
        self._game = np.array(state["game"], dtype=np.int64)
        self._running = np.array(state["running"], dtype=bool)
        self._score = np.array(state["score"], dtype=np.float64)
        self._history = [bytearray.fromhex(history) for history in state["history"]]
        if {array.shape for array in (self._game, self._running, self._score)} != {(self.num_envs,)}:
            raise ValueError(f"the state is not of {self.num_envs} games")
        if len(self._history) != self.num_envs or self._game.min() < 1:
            raise ValueError(f"the state is not of {self.num_envs} games under way")
        if any(max(history, default=0) >= self.spec.num_actions for history in self._history):
            raise ValueError(f"the state has actions that the game has not: there are {self.spec.num_actions}")
        lengths = np.array([len(history) for history in self._history])
        for remaining in range(int(lengths.max()), -1, -1):
            starting = lengths == remaining
            if starting.any():
                self._restart_current(starting)
            if remaining:
                playing = lengths >= remaining
                actions = np.zeros(self.num_envs, dtype=np.int64)
                for env in np.flatnonzero(playing):
                    actions[env] = self._history[env][lengths[env] - remaining]
                self.games.step(actions, playing)

    def _restart_current(self, mask: np.ndarray) -> None:
        """Starts the games that are being played, from their seeds."""
        seed_number, restarts = np.divmod(self._game - 1, self.games.games_per_seed)
        self.games.reset(mask, self._seeds(seed_number))
        for i in range(int(restarts[mask].max())):
            self.games.restart(mask & (restarts > i))

    def _start(self, mask: np.ndarray) -> np.ndarray:
        """Starts the next games; returns the newest frames of all."""
        seed_number, restarts = np.divmod(self._game, self.games.games_per_seed)
        seeded, restarted = mask & (restarts == 0), mask & (restarts > 0)
        if seeded.any():
            frames = self.games.reset(seeded, self._seeds(seed_number))
        if restarted.any():
            frames = self.games.restart(restarted)
        for env in np.flatnonzero(mask):
            self._history[env].clear()
        self._game[mask] += 1
        self._score[mask] = 0.0
        self._running |= mask
        return frames

    def _seeds(self, number: np.ndarray) -> np.ndarray:
        return np.array([episode_seed(self._seed, env, int(number[env])) for env in range(self.num_envs)])
