"""The small pixel games as Gymnasium environments, one at a time or vectorised: `hindcast/CollectObjects-v0` and so on."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.grid_games import GRIDS, GridGames

IDS = {"collect_objects": "hindcast/CollectObjects-v0", "puddleworld": "hindcast/Puddleworld-v0"}
ONE = np.ones(1, dtype=bool)


class GridVectorEnv(VectorEnv):
    """N games side by side in NumPy; a game that has ended begins anew with the next step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, game: str, num_envs: int = 1):
        self.num_envs = num_envs
        self._games = GridGames(GRIDS[game](), num_envs)
        self.single_observation_space, self.single_action_space = _spaces(self._games)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ended = np.zeros(num_envs, dtype=bool)

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeds = np.array(seed) if isinstance(seed, list) else self._draw_seeds()
        self._ended[:] = False
        return _images(self._games.reset(np.ones(self.num_envs, dtype=bool), seeds)), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        running = ~self._ended
        raw = self._games.step(np.asarray(actions), running)
        frames = raw.frames if running.all() else self._games.reset(self._ended, self._draw_seeds())
        terminated, truncated = raw.terminated & running, raw.truncated & running
        self._ended = terminated | truncated
        return _images(frames), np.where(running, raw.reward, 0.0), terminated, truncated, {}

    def _draw_seeds(self) -> np.ndarray:
        return self.np_random.integers(2**31, size=self.num_envs)


class GridEnv(gymnasium.Env):
    """One game."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, game: str, render_mode: str | None = None):
        self.render_mode = render_mode
        self._games = GridGames(GRIDS[game](), 1)
        self.observation_space, self.action_space = _spaces(self._games)
        self._image = np.zeros(self.observation_space.shape or (), dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._image = _images(self._games.reset(ONE, self.np_random.integers(2**31, size=1)))[0]
        return self._image, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        raw = self._games.step(np.array([action]), ONE)
        self._image = _images(raw.frames)[0]
        return self._image, float(raw.reward[0]), bool(raw.terminated[0]), bool(raw.truncated[0]), {}

    def render(self) -> np.ndarray:
        return np.repeat(self._image, 3, axis=-1)


def _spaces(games: GridGames) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Discrete]:
    channels, height, width = games.spec.frame_shape
    image = gymnasium.spaces.Box(0, 255, (height, width, channels), np.uint8)
    return image, gymnasium.spaces.Discrete(games.spec.num_actions)


def _images(frames: np.ndarray) -> np.ndarray:
    """[N, C, H, W] as [N, H, W, C]."""
    return frames.transpose(0, 2, 3, 1)


for _game, _id in IDS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(
            _id, "envs.grid_env:GridEnv", vector_entry_point="envs.grid_env:GridVectorEnv", kwargs={"game": _game}
        )
