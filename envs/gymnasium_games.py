"""Adapter for Gymnasium environments with image observations and discrete actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium
import numpy as np
from PIL import Image

from configs.errors import GameError
from configs.plugins import import_named
from envs.stream import EnvSpec, Games, RawStep

STACK = 4
SIZE = 84
SMALLEST_SIDE = 36
"""Least side in pixels that every torso accepts; smaller images are enlarged."""
MAX_ACTIONS = 256


class GymnasiumGames(Games):
    """N copies of a Gymnasium environment, stepped one after the other.

    Images keep their channels (greyscale or colour). Those with a side below 36 or above 84 are resized to 84 x 84. Four
    frames are stacked, as for Atari.
    """

    def __init__(self, env_id: str, num_envs: int):
        self.num_envs = num_envs
        self._id = env_id
        if module := env_id.rpartition(":")[0]:  # As `gymnasium.make` would, but with a clear error.
            import_named(module, env_id, GameError)
        try:
            self._envs = [gymnasium.make(env_id) for _ in range(num_envs)]
        except Exception as error:  # The environment's own code may raise anything.
            raise GameError(f"{env_id} cannot be made: {error}") from error
        observations, actions = self._envs[0].observation_space, self._envs[0].action_space
        if not isinstance(actions, gymnasium.spaces.Discrete) or actions.n > MAX_ACTIONS or actions.start != 0:
            raise GameError(f"{env_id} has actions {actions}; only Discrete(n), n <= {MAX_ACTIONS}, from 0 is supported")
        if not isinstance(observations, gymnasium.spaces.Box) or not _is_image(observations):
            raise GameError(f"{env_id} observes {observations}; only uint8 images [H, W] or [H, W, channels] are supported")
        self._image_shape = shape = observations.shape
        channels = shape[2] if len(shape) == 3 else 1
        fits = all(SMALLEST_SIDE <= side <= SIZE for side in shape[:2])
        height, width = shape[:2] if fits else (SIZE, SIZE)
        skip = frame_skip(self._envs[0].spec)
        self.spec = EnvSpec(int(actions.n), (channels, height, width), stack=STACK, frames_per_step=skip)
        self._frames = np.zeros((num_envs, *self.spec.frame_shape), dtype=np.uint8)

    def reset(self, mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        for i in np.flatnonzero(mask):
            with self._errors_named(f"environment {i}", f"when reset with seed {seeds[i]}"):
                self._frames[i] = self._frame(self._envs[i].reset(seed=int(seeds[i]))[0])
        return self._frames.copy()

    def step(self, actions: np.ndarray, running: np.ndarray) -> RawStep:
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), dtype=bool)
        for i in np.flatnonzero(running):
            with self._errors_named(f"environment {i}", f"at action {actions[i]}"):
                observation, reward[i], terminated[i], truncated[i], _ = self._envs[i].step(int(actions[i]))
                self._frames[i] = self._frame(observation)
        return RawStep(self._frames.copy(), reward, terminated, truncated, life_lost=np.zeros(self.num_envs, dtype=bool))

    def close(self) -> None:
        for env in self._envs:
            env.close()

    @contextmanager
    def _errors_named(self, which: str, when: str) -> Iterator[None]:
        """Turn any exception of the environment into a GameError that names the environment and the action or seed."""
        try:
            yield
        except Exception as error:
            raise GameError(f"{which} of {self._id} failed {when}: {type(error).__name__}: {error}") from error

    def _frame(self, image: np.ndarray) -> np.ndarray:
        image = np.asarray(image)
        if image.dtype != np.uint8 or image.shape != self._image_shape:
            raise TypeError(
                f"the observation is {image.dtype} {list(image.shape)}, not uint8 {list(self._image_shape)} as its space says"
            )
        return image_to_frame(image, self.spec.frame_shape)


def image_to_frame(image: np.ndarray, frame_shape: tuple[int, int, int]) -> np.ndarray:
    """The frame [C, H, W] of an image [h, w] or [h, w, C], resized if need be."""
    channels, height, width = frame_shape
    image = image.reshape(*image.shape[:2], channels)
    if image.shape[:2] != (height, width):
        planes = [Image.fromarray(image[..., c]).resize((width, height), Image.Resampling.BOX) for c in range(channels)]
        image = np.stack([np.asarray(plane) for plane in planes], axis=-1)
    return image.transpose(2, 0, 1)


def frame_skip(spec: gymnasium.envs.registration.EnvSpec | None) -> int:
    """Frames per action: the `frameskip` that the environment is registered with, else 1.

    For a pair (low, high) ale-py samples low to high - 1 frames for every action; the rounded mean is returned.
    """
    match spec.kwargs.get("frameskip") if spec else None:
        case bool():
            return 1
        case int(skip) if skip >= 1:
            return skip
        case (int(low), int(high)) if 1 <= low < high:
            return round((low + high - 1) / 2)
    return 1


def _is_image(space: gymnasium.spaces.Box) -> bool:
    return space.dtype == np.uint8 and (len(space.shape) == 2 or (len(space.shape) == 3 and space.shape[2] in (1, 3, 4)))
