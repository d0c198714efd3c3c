"""Atari through ale-py's C++ vector environment, under one of two evaluation protocols."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv

from envs.stream import EnvSpec, Games, RawStep

STACK = 4
SCREEN = (3, 210, 160)
FRAMES_PER_STEP = 4
MAX_GAME_FRAMES = 108_000
TWO_PLAYER_GAMES = {"combat", "joust", "maze_craze", "warlords"}
"""ROMs that ale-py ships but that end the process when started without a second player."""
GAMES_PER_SEED = 16
"""Seeding reloads the ROM, which takes as long as about 250 steps, a whole game of Breakout."""
START_DEPENDS_ON_RAM = {"ice_hockey", "sir_lancelot", "surround", "time_pilot", "yars_revenge"}
"""Games whose start depends on the RAM left by the previous game, unless they are seeded."""


@dataclass(frozen=True)
class Protocol:
    """Evaluation protocol: scores are comparable only under the same one."""

    repeat_action_probability: float
    full_action_space: bool
    terminal_on_life_loss: bool
    noop_max: int


PROTOCOLS = {
    "impala": Protocol(repeat_action_probability=0.0, full_action_space=False, terminal_on_life_loss=True, noop_max=30),
    "machado": Protocol(repeat_action_probability=0.25, full_action_space=True, terminal_on_life_loss=False, noop_max=0),
}


@dataclass(frozen=True)
class Scores:
    """Published raw scores of one game."""

    random: float
    human: float
    impala_shallow: float
    impala_deep: float

    def human_normalised(self, score: float) -> float:
        return (score - self.random) / (self.human - self.random)


@cache
def published_scores() -> dict[str, Scores]:
    """Random, human and IMPALA scores (200M frames, no-op starts) of the 57 games, by game."""
    with (files("envs") / "atari57_scores.csv").open() as file:
        return {row.pop("game"): Scores(*(float(value) for value in row.values())) for row in csv.DictReader(file)}


@cache
def atari_games() -> tuple[str, ...]:
    """Names of all single-player games whose ROM ships with ale-py."""
    return tuple(sorted(set(roms.get_all_rom_ids()) - TWO_PLAYER_GAMES))


class AtariGames(Games):
    """N games of one ROM: 84 x 84 greyscale frames, action repeat 4 with max over the last two frames, raw rewards.

    With `for_video` the frames are 210 x 160 in colour.
    """

    def __init__(self, game: str, protocol: str, num_envs: int, num_threads: int = 1, for_video: bool = False):
        rules = PROTOCOLS[protocol]
        self.num_envs = num_envs
        self._terminal_on_life_loss = rules.terminal_on_life_loss
        if not rules.repeat_action_probability and game not in START_DEPENDS_ON_RAM:
            self.games_per_seed = GAMES_PER_SEED
        self._env = AtariVectorEnv(
            game,
            num_envs,
            num_threads=num_threads,
            max_num_frames_per_episode=MAX_GAME_FRAMES,
            repeat_action_probability=rules.repeat_action_probability,
            full_action_space=rules.full_action_space,
            noop_max=rules.noop_max,
            img_height=SCREEN[1] if for_video else 84,
            img_width=SCREEN[2] if for_video else 84,
            grayscale=not for_video,
            stack_num=1,
            frameskip=FRAMES_PER_STEP,
            maxpool=True,
            # `episodic_life` would restart the game after every life; clipped rewards would not add up to the score.
            episodic_life=False,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.spec = EnvSpec(
            num_actions=len(self._env.ale.get_action_set()),
            frame_shape=SCREEN if for_video else (1, 84, 84),
            stack=STACK,
            frames_per_step=FRAMES_PER_STEP,
        )
        self._lives = np.zeros(num_envs, dtype=np.int32)
        self._over, self._restarted = np.zeros((2, num_envs), dtype=bool)
        self._started = False

    def reset(self, mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        if not self._started:
            self._started = True  # The C++ env resets single games only after a reset of all.
            mask = np.ones(self.num_envs, dtype=bool)
        return self._begin(mask, seed=seeds[mask])

    def restart(self, mask: np.ndarray) -> np.ndarray:
        """Frames [N, C, H, W] after a restart; right after the end of a game the C++ env has restarted it already."""
        waiting = mask & ~self._restarted
        self._restarted &= ~mask
        return self._begin(waiting) if waiting.any() else self._frames

    def step(self, actions: np.ndarray, running: np.ndarray) -> RawStep:
        frames, reward, terminated, truncated, info = self._env.step(actions.astype(np.int32, copy=False))
        self._frames = self._channels_first(frames)
        self._over, self._restarted = terminated | truncated, self._over
        life_lost = (info["lives"] < self._lives) & running & self._terminal_on_life_loss
        self._lives = info["lives"].copy()
        return RawStep(self._frames, reward, terminated, truncated, life_lost)

    def close(self) -> None:
        self._env.close()

    def _begin(self, mask: np.ndarray, **seed: np.ndarray) -> np.ndarray:
        frames, info = self._env.reset(options={"reset_mask": mask}, **seed)
        self._frames = self._channels_first(frames)
        self._lives = info["lives"].copy()
        self._over &= ~mask
        self._restarted &= ~mask
        return self._frames

    def _channels_first(self, frames: np.ndarray) -> np.ndarray:
        """[N, 1, H, W] unchanged, [N, 1, H, W, 3] as [N, 3, H, W]."""
        return frames if frames.ndim == 4 else frames[:, 0].transpose(0, 3, 1, 2)
