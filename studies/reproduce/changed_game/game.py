"""Games in ALE emulators that can be saved, continued several times, and changed while they are played.

ale-py's vector environment has neither modes nor difficulties, and cannot be saved, so these are single emulators with the same
preprocessing: the maximum of the last two frames in grey, averaged over areas down to 84 x 84.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ale_py import ALEInterface, ALEState, LoggerMode, roms
from numpy.typing import NDArray

from configs.errors import ConfigError
from envs.atari import FRAMES_PER_STEP, PROTOCOLS

HEIGHT, WIDTH, SIDE = 210, 160, 84
LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""Weights of red, green and blue in grey."""
MASKED_COLUMNS = slice(32, 53)
"""A quarter of the screen, in its middle."""


@dataclass(frozen=True)
class Change:
    """What differs from normal play; the default is normal play."""

    mode: int | None = None
    """Another mode of the game; the next step begins a new game in it."""
    new_game: bool = False
    """The next step begins a new game."""
    difficulty: int | None = None
    """Another position of the difficulty switch."""
    sticky: float = 0.0
    """Probability with which the emulator repeats the previous action, in every frame."""
    frame_skip: int = FRAMES_PER_STEP
    """Frames of a step."""
    recoloured: bool = False
    """Red becomes green, green blue and blue red, before the screen becomes grey."""
    masked: bool = False
    """The middle quarter of the screen is black."""
    random_actions: float = 0.0
    """Share of actions that are uniformly random in place of the agent's."""

    def __post_init__(self) -> None:
        for name in ("sticky", "random_actions"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie in [0, 1], not {getattr(self, name)}")
        if self.frame_skip < 1:
            raise ConfigError(f"frame_skip must be at least 1, not {self.frame_skip}")

    @property
    def restarts(self) -> bool:
        return self.new_game or self.mode is not None


NORMAL = Change()


@dataclass(frozen=True)
class GameStep:
    """One step of N games; each field [N, ...]."""

    frames: NDArray[np.uint8]
    """[N, 84, 84]"""
    reward: NDArray[np.float64]
    life_lost: NDArray[np.bool_]
    new_game: NDArray[np.bool_]
    """Whether the frame opens a game, which also ends the last life of the one before."""


@dataclass(frozen=True)
class SavedGames:
    """States of the emulators and of what draws the number of no-ops."""

    states: tuple[ALEState, ...]
    lives: NDArray[np.int64]
    rng: Mapping[str, Any]


def available(game: str) -> tuple[list[int], list[int]]:
    """Modes and difficulties of a game; the first of each is the default."""
    emulator = _load(game, seed=0, sticky=0.0)
    return emulator.getAvailableModes(), emulator.getAvailableDifficulties()


def area_weights(source: int, target: int) -> NDArray[np.float32]:
    """Weights [target, source] by which a pixel of the small image averages those of the large one that it covers."""
    edges = np.arange(target + 1) * (source / target)
    covered = np.minimum(edges[1:, None], np.arange(1, source + 1)) - np.maximum(edges[:-1, None], np.arange(source))
    return (np.maximum(covered, 0.0) * (target / source)).astype(np.float32)


# The weights repeat: 5 rows make 2, and 40 columns 21.
_ROWS = area_weights(HEIGHT // math.gcd(HEIGHT, SIDE), SIDE // math.gcd(HEIGHT, SIDE))
_COLUMNS = area_weights(WIDTH // math.gcd(WIDTH, SIDE), SIDE // math.gcd(WIDTH, SIDE)).T.copy()


def shrink(screens: NDArray[Any]) -> NDArray[np.uint8]:
    """Grey screens [N, 210, 160] as frames [N, 84, 84]."""
    narrow = screens.astype(np.float32).reshape(len(screens), -1, len(_COLUMNS)) @ _COLUMNS
    small = _ROWS @ narrow.reshape(len(screens), -1, _ROWS.shape[1], SIDE)
    return np.rint(small.reshape(-1, SIDE, SIDE)).astype(np.uint8)


class EmulatedGames:
    """N endless streams of one Atari game under the `impala` protocol, with its minimal actions and up to 30 no-ops.

    Emulators are made once for each stickiness, which ALE fixes when the ROM is loaded; `restore` carries a game into them.
    """

    def __init__(self, game: str, count: int, seed: int, sticky: float = 0.0):
        self._emulators = [_load(game, seed + i, sticky) for i in range(count)]
        self._sticky = sticky
        self._rng = np.random.default_rng([seed, count])
        self.actions = self._emulators[0].getMinimalActionSet()
        self._lives = np.zeros(count, dtype=np.int64)
        self._change = replace(NORMAL, sticky=sticky)
        self._restart = np.zeros(count, dtype=bool)

    def __len__(self) -> int:
        return len(self._emulators)

    def reset(self) -> NDArray[np.uint8]:
        """Begin all games; return their first frames [N, 84, 84]."""
        for i in range(len(self)):
            self._begin(i)
        return self._finish(np.stack([self._screen(emulator) for emulator in self._emulators]))

    def save(self) -> SavedGames:
        states = tuple(emulator.cloneState(include_rng=True) for emulator in self._emulators)
        return SavedGames(states, self._lives.copy(), self._rng.bit_generator.state)

    def restore(self, saved: SavedGames, change: Change = NORMAL) -> None:
        """Continue saved games, changed from their next step on."""
        if change.sticky != self._sticky:
            raise ConfigError(f"these emulators have sticky actions of {self._sticky}, not {change.sticky}")
        for emulator, state in zip(self._emulators, saved.states, strict=True):
            emulator.restoreState(state)
            for offered, value, name, apply in (
                (emulator.getAvailableModes(), change.mode, "mode", emulator.setMode),
                (emulator.getAvailableDifficulties(), change.difficulty, "difficulty", emulator.setDifficulty),
            ):
                if value is not None and value not in offered:
                    raise ConfigError(f"the game has no {name} {value}; it has {', '.join(map(str, offered))}")
                if value is not None:
                    apply(value)
        self._lives = saved.lives.copy()
        self._rng.bit_generator.state = saved.rng
        self._change = change
        self.restart(np.full(len(self), change.restarts))

    def restart(self, where: NDArray[np.bool_]) -> None:
        """Begin a new game with the next step `where` [N]."""
        self._restart = where

    def step(self, actions: NDArray[np.int64]) -> GameStep:
        """Play one step of every game; one that ends is followed by the next at once."""
        rewards = np.zeros(len(self))
        life_lost, new_game = np.zeros((2, len(self)), dtype=bool)
        screens = []
        for i, emulator in enumerate(self._emulators):
            screens.append(self._play(i, emulator, int(actions[i]), rewards))
            lives = emulator.lives()
            life_lost[i], self._lives[i] = lives < self._lives[i], lives
            new_game[i] = self._restart[i] or emulator.game_over()
            if new_game[i]:
                self._begin(i)
                screens[i] = self._screen(emulator)
        self._restart = np.zeros(len(self), dtype=bool)
        return GameStep(self._finish(np.stack(screens)), rewards, life_lost, new_game)

    def _play(self, i: int, emulator: ALEInterface, action: int, rewards: NDArray[np.float64]) -> NDArray[Any]:
        """The brighter of the last two screens."""
        before: NDArray[Any] | None = None
        for frame in range(self._change.frame_skip):
            if frame == self._change.frame_skip - 1 > 0:
                before = self._screen(emulator)
            rewards[i] += emulator.act(self.actions[action])
            if emulator.game_over():
                break
        after = self._screen(emulator)
        return after if before is None else np.maximum(before, after)

    def _begin(self, i: int) -> None:
        emulator = self._emulators[i]
        emulator.reset_game()
        for _ in range(self._rng.integers(PROTOCOLS["impala"].noop_max + 1)):
            emulator.act(0)
        self._lives[i] = emulator.lives()

    def _screen(self, emulator: ALEInterface) -> NDArray[Any]:
        if not self._change.recoloured:
            return emulator.getScreenGrayscale()
        return emulator.getScreenRGB() @ np.roll(LUMINANCE, -1)

    def _finish(self, screens: NDArray[Any]) -> NDArray[np.uint8]:
        frames = shrink(screens)
        if self._change.masked:
            frames[:, :, MASKED_COLUMNS] = 0
        return frames


def _load(game: str, seed: int, sticky: float) -> ALEInterface:
    path = roms.get_rom_path(game) if game in roms.get_all_rom_ids() else None
    if path is None:
        raise ConfigError(f"ale-py has no ROM of the game {game!r}")
    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.setInt("random_seed", seed)
    emulator.setFloat("repeat_action_probability", sticky)
    emulator.loadROM(path)
    return emulator
