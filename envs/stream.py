"""Endless streams of steps from vectorised games, with autoreset.

A *game* runs from reset to game over or time limit. A *learning episode* may be shorter: under the IMPALA protocol the loss of
a life ends it. Autoreset is next-step: the step after the end of a game ignores its action and returns the first frame of the
next game. It is marked `valid=False` and never trained on. So the last observation of a truncated game stays in the stream to
bootstrap from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.errors import GameError
from envs.fields import COMPUTED, FIELDS, Transition


@dataclass(frozen=True)
class EnvSpec:
    """Shapes and counts of a game that an agent is built from."""

    num_actions: int
    frame_shape: tuple[int, int, int]
    """Channels, height and width of one frame."""
    stack: int
    """Number of successive frames in an observation."""
    frames_per_step: int
    """Environment frames per action (the action repeat)."""

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        """Channels of all stacked frames, height and width."""
        channels, height, width = self.frame_shape
        return (channels * self.stack, height, width)


class Games(ABC):
    """A vectorised environment: N copies of one game, without autoreset."""

    spec: EnvSpec
    num_envs: int
    games_per_seed: int = 1
    """Successive games per seed: `reset` starts the first, `restart` the others."""

    @abstractmethod
    def reset(self, mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Start the games where `mask` [N], from their entries of `seeds` [N]; return the frames of all [N, C, H, W]."""

    def restart(self, mask: np.ndarray) -> np.ndarray:
        """Start the next games of the same seeds where `mask` [N]; they depend on the number of restarts at most."""
        raise NotImplementedError(f"{type(self).__name__} has games_per_seed = 1 and starts every game with reset")

    @abstractmethod
    def step(self, actions: np.ndarray, running: np.ndarray) -> RawStep:
        """Step the games where `running` [N] with `actions` [N]; the results of the other games are undefined."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass
class RawStep:
    """Result of `Games.step`, before autoreset; each field [N, ...]."""

    frames: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    life_lost: np.ndarray


@dataclass
class Episode:
    """A finished game: its unclipped score and its length in agent steps."""

    score: float
    steps: int


@dataclass
class StreamStep:
    """One step of N streams."""

    arrays: dict[str, np.ndarray]
    """By name, [N, ...]: the fields of `StepFields` that the stream computes, also as attributes. `reward`, `discount` and
    `valid` belong to the action; `frames` and `first` to the observation after it."""
    new_game: np.ndarray
    """[N] bool, True where the observation after the action opens a game."""
    episodes: list[Episode]
    """Games that ended with this step."""
    ended: list[int]
    """Environments in which they ended."""

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["arrays"][name]
        except KeyError:
            raise AttributeError(name) from None


def episode_seed(stream_seed: int, env: int, number: int) -> int:
    """The `number`-th seed of environment `env` in a stream, a pure function of its arguments."""
    return int(np.random.SeedSequence([stream_seed, env, number]).generate_state(1)[0] >> 1)


class EpisodeStream:
    """N endless streams of games, with autoreset.

    A game is a function of its seed and its actions. The state of a stream is saved as these and restored by replay, so no
    access to the state of the emulator is needed.
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
        """Start all games; return the first frames [N, C, H, W]."""
        return self._start(np.ones(self.num_envs, dtype=bool))

    def step(self, actions: np.ndarray) -> StreamStep:
        """Step all streams with `actions` [N]; games that have ended ignore theirs and are reset."""
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
        transition = Transition(frames, raw.reward, valid, terminated, ended, life_lost)
        arrays: dict[str, np.ndarray] = {
            name: compute(transition).astype(FIELDS[name].dtype, copy=False) for name, compute in COMPUTED.items()
        }
        return StreamStep(arrays, ~valid, episodes, ended_envs)

    def close(self) -> None:
        self.games.close()

    def state_dict(self) -> dict[str, Any]:
        """Seeds, numbers, scores and actions of the games in progress, as plain values for JSON."""
        return {
            "seed": self._seed,
            "game": self._game.tolist(),
            "running": self._running.tolist(),
            "score": self._score.tolist(),
            "history": [history.hex() for history in self._history],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replay the actions of each game from its seed; all games finish their replay at the same step.

        Raises ValueError for a state of another game or another number of games: emulators do not check actions.
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
            raise ValueError(f"the state has an action outside 0..{self.spec.num_actions - 1}: it is of another game")
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
        """Start the games in progress anew, from their seeds, where `mask` [N]."""
        seed_number, restarts = np.divmod(self._game - 1, self.games.games_per_seed)
        self.games.reset(mask, self._seeds(seed_number))
        for i in range(int(restarts[mask].max())):
            self.games.restart(mask & (restarts > i))

    def _start(self, mask: np.ndarray) -> np.ndarray:
        """Start the next games where `mask` [N]; return the newest frames of all games."""
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
