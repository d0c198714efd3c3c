"""A trained agent as a function from what it sees to actions."""

from __future__ import annotations

import numpy as np
import torch

from actors.rollout import sample_actions
from agents.agent import Agent
from envs.frame_stack import FrameStack
from envs.gymnasium_games import image_to_frame
from envs.stream import EnvSpec


class Policy:
    """Plays one Gymnasium environment, or N games of ours at once; keeps their frame stacks and recurrent states.

    Actions are sampled from the agent's distribution, or its argmax if `greedy`.
    """

    def __init__(self, agent: Agent, spec: EnvSpec, seed: int = 0, greedy: bool = False):
        self.spec = spec
        self._agent = agent.cpu()
        self._greedy = greedy
        self._rng = np.random.default_rng(seed)
        self._stack: FrameStack | None = None

    def reset(self) -> None:
        """Forget the game: the next observation opens a new one. To be called with every `reset` of an environment."""
        self._stack = None

    def __call__(self, image: np.ndarray) -> int:
        """The action for an image [H, W] or [H, W, C] uint8 of a Gymnasium environment, resized where the agent's are."""
        image = np.asarray(image)
        channels = image.shape[2] if image.ndim == 3 else 1
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or channels != self.spec.frame_shape[0]:
            raise ValueError(
                f"the policy sees uint8 images [H, W] or [H, W, channels] with {self.spec.frame_shape[0]} channels,"
                f" not {image.dtype} {list(image.shape)}"
            )
        opens = np.array([self._stack is None])
        return int(self.act(image_to_frame(image, self.spec.frame_shape)[None], opens, opens)[0])

    @torch.inference_mode()
    def act(self, frames: np.ndarray, new_game: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Actions [N] for the newest frames [N, C, H, W] of N games.

        `new_game` [N] is True where a frame opens a game, `first` [N] where it opens a learning episode, as in `StreamStep`.
        """
        if self._stack is None:
            self._stack = FrameStack(self.spec, len(frames))
            self._state = self._agent.initial_state(len(frames))
        observations = torch.from_numpy(self._stack.push(frames, new_game))
        logits, self._state = self._agent.act(observations, torch.from_numpy(first), self._state)
        return logits.argmax(dim=1).numpy() if self._greedy else sample_actions(logits.numpy(), self._rng)
