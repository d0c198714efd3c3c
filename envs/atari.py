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
"""ROMs that ale-py ships but, without a second player, answers by ending the process."""
GAMES_PER_SEED = 16
"""Seeding loads the ROM again, which takes as long as some 250 steps: a whole game of Breakout."""
START_DEPENDS_ON_RAM = {"ice_hockey", "sir_lancelot", "surround", "time_pilot", "yars_revenge"}
"""Games whose beginning depends on what the console's memory held, and so on the game before, unless they are seeded."""


@dataclass(frozen=True)
class Protocol:
    """What two scores must share to be comparable."""

    sticky: float
    full_actions: bool
    life_loss_ends: bool
    noop_max: int


PROTOCOLS = {
    "impala": Protocol(sticky=0.0, full_actions=False, life_loss_ends=True, noop_max=30),
    "machado": Protocol(sticky=0.25, full_actions=True, life_loss_ends=False, noop_max=0),
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
    """Random, human and IMPALA scores (200M frames, no-op starts) of the 57 games that have them."""
    with (files("envs") / "atari57_scores.csv").open() as file:
        return {row.pop("game"): Scores(*(float(value) for value in row.values())) for row in csv.DictReader(file)}


@cache
def atari_games() -> tuple[str, ...]:
    """Every game whose ROM ships with ale-py and that it can play alone."""
    return tuple(sorted(set(roms.get_all_rom_ids()) - TWO_PLAYER_GAMES))


class AtariGames(Games):
    """N games of one ROM: 84 x 84 grey frames, action repeat 4 with max over the last two frames, raw rewards.

    With `for_video` the frames are the console's own, 210 x 160 in colour.
    """

    def __init__(self, game: str, protocol: str, num_envs: int, num_threads: int = 1, for_video: bool = False):
        rules = PROTOCOLS[protocol]
        self.num_envs = num_envs
        self._life_loss_ends = rules.life_loss_ends
        if not rules.sticky and game not in START_DEPENDS_ON_RAM:
            self.games_per_seed = GAMES_PER_SEED
        self._env = AtariVectorEnv(
            game,
            num_envs,
            num_threads=num_threads,
            max_num_frames_per_episode=MAX_GAME_FRAMES,
            repeat_action_probability=rules.sticky,
            full_action_space=rules.full_actions,
            noop_max=rules.noop_max,
            img_height=SCREEN[1] if for_video else 84,
            img_width=SCREEN[2] if for_video else 84,
            grayscale=not for_video,
            stack_num=1,
            frameskip=FRAMES_PER_STEP,
            maxpool=True,
            # `episodic_life` would restart the game with every life, and clipping would lose the score.
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
            self._started = True  # The C++ env wants every game started once before it will reset single ones.
            mask = np.ones(self.num_envs, dtype=bool)
        return self._begin(mask, seed=seeds[mask])

    def restart(self, mask: np.ndarray) -> np.ndarray:
        """Costs nothing right after the step that followed an end, in which the C++ env has restarted the game already."""
        waiting = mask & ~self._restarted
        self._restarted &= ~mask
        return self._begin(waiting) if waiting.any() else self._frames

    def step(self, actions: np.ndarray, running: np.ndarray) -> RawStep:
        frames, reward, terminated, truncated, info = self._env.step(actions.astype(np.int32, copy=False))
        self._frames = self._channels_first(frames)
        self._over, self._restarted = terminated | truncated, self._over
        life_lost = (info["lives"] < self._lives) & running & self._life_loss_ends
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
        """[N, 1, H, W] as it is, [N, 1, H, W, 3] as [N, 3, H, W]."""
        return frames if frames.ndim == 4 else frames[:, 0].transpose(0, 3, 1, 2)
