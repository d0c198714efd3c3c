"""Playing: an agent, some games, and the trajectory that they make."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from actors.trajectory import RolloutCost, Trajectory
from agents.agent import Agent, use_flat_weights
from agents.initialisation import skip_initialisation
from configs.train import TrainConfig
from envs.fields import FIELDS
from envs.frame_stack import FrameStack
from envs.registry import make_games
from envs.stream import Episode, EpisodeStream


def sample_actions(logits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One action per row of `logits` [N, A], drawn from their softmax (the Gumbel-max trick)."""
    return (logits + rng.gumbel(size=logits.shape)).argmax(-1)


class RolloutWorker:
    """Plays N games with its own copy of the agent and cuts the streams into trajectories of T steps."""

    def __init__(self, config: TrainConfig, num_envs: int, seed: int):
        self._unroll = config.learner.unroll
        self._stream = EpisodeStream(make_games(config.env.game, config.env.protocol, num_envs), seed)
        self.spec = self._stream.spec
        with skip_initialisation():
            self._agent = Agent(self.spec, config.agent.torso, config.agent.lstm_size)
        self._stack = FrameStack(self.spec, num_envs)
        self._rng = np.random.default_rng(seed)
        self._first = np.ones(num_envs, dtype=bool)
        self._core_state = self._agent.initial_state(num_envs)
        self._version: int | None = None
        """Of the weights; None until there are any."""
        self._started = False
        self._process = psutil.Process()

    def set_weights(self, weights: Tensor, version: int) -> None:
        """Acts with these from the next step on, without copying them; the version goes into every trajectory."""
        use_flat_weights(self._agent, weights)
        self._version = version

    @torch.inference_mode()
    def rollout(self) -> Trajectory:
        if self._version is None:
            raise RuntimeError("weights must be set before the first rollout")
        start = time.perf_counter()
        if not self._started:
            self._stack.push(self._stream.reset(), self._first)
            self._started = True
        n, length = self._stream.num_envs, self._unroll
        start_values = {"stack": self._stack.array.copy(), "core_state": self._core_state.numpy().copy()}
        arrays = {name: f.allocate(self.spec, length, n) for name, f in FIELDS.items() if f.time != "start"}
        episodes: list[Episode] = []
        env_time = inference_time = 0.0

        arrays["first"][0] = self._first
        for t in range(length):
            tick = time.perf_counter()
            logits_t, self._core_state = self._agent.act(
                torch.from_numpy(self._stack.array), torch.from_numpy(self._first), self._core_state
            )
            arrays["logits"][t] = logits_t.numpy()
            action = sample_actions(arrays["logits"][t], self._rng)
            arrays["action"][t] = action
            tock = time.perf_counter()
            step = self._stream.step(action)
            self._stack.push(step.frames, step.new_game)
            self._first = step.first
            for name, value in step.arrays.items():
                arrays[name][t + (FIELDS[name].time == "observation")] = value
            episodes += step.episodes
            inference_time += tock - tick
            env_time += time.perf_counter() - tock
        cost = RolloutCost(env_time, inference_time, time.perf_counter() - start, self._process.memory_info().rss)
        return Trajectory(**start_values, **arrays, version=self._version, episodes=episodes, cost=cost)

    def like(self, columns: int) -> dict[str, Tensor]:
        """Tensors of the shapes and types that the fields of `columns` games have in a trajectory."""
        start = {
            "stack": self._stack.array[:1].repeat(columns, 0),
            "core_state": self._core_state.numpy()[:1].repeat(columns, 0),
        }
        fields = {name: field.allocate(self.spec, self._unroll, columns) for name, field in FIELDS.items() if name not in start}
        return {name: torch.from_numpy(array) for name, array in (start | fields).items()}

    def close(self) -> None:
        self._stream.close()

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values from which `load_state_dict` continues as if nothing had happened."""
        tensors = {
            "stack": torch.from_numpy(self._stack.array),
            "first": torch.from_numpy(self._first),
            "core_state": self._core_state,
        }
        stream = self._stream.state_dict() if self._started else None
        return tensors, {"rng": self._rng.bit_generator.state, "stream": stream}

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Raises ValueError for a state that is not of this agent and as many games."""
        for name, own in self.state_dict()[0].items():
            if (tensors[name].shape, tensors[name].dtype) != (own.shape, own.dtype):
                raise ValueError(f"'{name}' is {list(tensors[name].shape)} in the checkpoint, {list(own.shape)} here")
        self._stack.array[:] = tensors["stack"].numpy()
        self._first = tensors["first"].numpy().copy()
        self._core_state = tensors["core_state"].clone()
        self._rng.bit_generator.state = values["rng"]
        self._started = values["stream"] is not None
        if self._started:
            self._stream.load_state_dict(values["stream"])
