"""A frozen agent that plays N streams of a game, and what a monitor sees of them: its features, and two reverse returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from actors.rollout import sample_actions
from agents.agent import Agent
from configs.errors import CheckpointError
from envs.frame_stack import FrameStack
from envs.registry import game_spec
from retrospective.finite_mdp import Array
from studies.reproduce.changed_game.game import NORMAL, Change, EmulatedGames, SavedGames
from training.evaluation import load_agent
from training.storage.run_directory import RunDirectory

AGENTS = Path(__file__).parent / "agents"
"""A run directory for each game, with weights in half precision."""
QUESTIONS = ("reward", "steps")
"""Discounted reward lately, and steps since the last life was lost."""


@dataclass(frozen=True)
class Play:
    """What was seen in T steps of N streams. Rewards, discounts and returns belong to the step that leads to a state."""

    features: Array
    """[T + 1, N, F], the first of the state before the first step."""
    reward: Array
    """[T, N, questions]: of the game, and 1 for a step; 0 where the past is forgotten."""
    discount: Array
    """[T, N, questions]: 0 where the past is forgotten, as a game begins or, for the second question, a life is lost."""
    returns: Array
    """[T, N, questions]: G_t = R_t + gamma_t G_{t-1}."""

    @property
    def states(self) -> Array:
        """[T, N, F], reached by each step."""
        return self.features[1:]

    def __len__(self) -> int:
        return len(self.reward)


@dataclass(frozen=True)
class SavedPlay:
    """Everything from which `Player` continues."""

    games: SavedGames
    stack: NDArray[np.uint8]
    logits: NDArray[np.float32]
    features: Array
    returns: Array
    rng: Mapping[str, Any]


def agent_directory(game: str) -> RunDirectory:
    """The run directory of the committed agent; raises CheckpointError if there is none."""
    if not (AGENTS / game).is_dir():
        found = ", ".join(sorted(path.name for path in AGENTS.iterdir()))
        raise CheckpointError(f"there is no agent of the game {game!r}; there is {found}")
    return RunDirectory.open(AGENTS / game)


def load_player_agent(game: str) -> Agent:
    directory = agent_directory(game)
    return load_agent(directory.read_config(), directory.checkpoints(keep=1).newest())


class Player:
    """The agent samples its actions; what it sees of a state is a fixed random projection of its torso's features.

    `discount` is that of the reward; steps are counted without one.
    """

    def __init__(self, game: str, games: EmulatedGames, seed: int, num_features: int, discount: float):
        if not 0 <= discount < 1:
            raise ValueError(f"discount must lie in [0, 1), not {discount}")
        self._agent = load_player_agent(game)
        width = self._agent.torso.num_features
        self._projection = np.random.default_rng(0).normal(0, width**-0.5, (width, num_features)).astype(np.float32)
        self._games = games
        self._discount = discount
        self._rng = np.random.default_rng(seed)
        self._stack = FrameStack(game_spec(game, "impala"), len(games))
        self._returns = np.zeros((len(games), len(QUESTIONS)))
        self._change = NORMAL
        self._see(games.reset(), np.ones(len(games), dtype=bool))

    def record(self, steps: int, restarts: int = 0) -> Play:
        """Play on.

        With `restarts` every stream begins a new game at a random one of so many steps, so that they come to different stages.
        """
        features, seen = [self._features], []
        begin = self._rng.integers(restarts, size=len(self._games)) if restarts else None
        for t in range(steps):
            if begin is not None:
                self._games.restart(begin == t)
            seen.append(self._step())
            features.append(self._features)
        return Play(np.stack(features), *(np.stack(values) for values in zip(*seen, strict=True)))

    def save(self) -> SavedPlay:
        state = self._rng.bit_generator.state
        return SavedPlay(self._games.save(), self._stack.array.copy(), self._logits, self._features, self._returns, state)

    def restore(self, saved: SavedPlay, games: EmulatedGames, change: Change = NORMAL) -> None:
        """Continue saved play in `games`, changed from its next step on."""
        games.restore(saved.games, change)
        self._games, self._change = games, change
        self._stack.array[:] = saved.stack
        self._logits, self._features, self._returns = saved.logits, saved.features, saved.returns
        self._rng.bit_generator.state = saved.rng

    def _step(self) -> tuple[Array, Array, Array]:
        """Rewards, discounts and returns [N, questions]."""
        own = sample_actions(self._logits, self._rng)
        # Always drawn, so that changes of other kinds meet the same random numbers.
        is_random = self._rng.random(len(own)) < self._change.random_actions
        other = self._rng.integers(self._logits.shape[1], size=len(own))
        step = self._games.step(np.where(is_random, other, own))
        self._see(step.frames, step.new_game)
        forget = np.stack([step.new_game, step.new_game | step.life_lost], axis=-1)
        reward = np.where(forget, 0.0, np.stack([step.reward, np.ones(len(own))], axis=-1))
        discount = np.where(forget, 0.0, [self._discount, 1.0])
        self._returns = reward + discount * self._returns
        return reward, discount, self._returns

    @torch.inference_mode()
    def _see(self, frames: NDArray[np.uint8], new_game: NDArray[np.bool_]) -> None:
        observations = torch.from_numpy(self._stack.push(frames[:, None], new_game))
        features = self._agent.torso(self._agent.preprocess(observations))
        self._logits = self._agent.policy(features).numpy()
        self._features = features.numpy() @ self._projection
