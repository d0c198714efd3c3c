"""The TD3 policy of the Reacher study: trained once and saved with its return."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from configs.errors import CheckpointError, StopRequested
from retrospective.finite_mdp import Array
from training.progress import Progress
from training.storage.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

log = logging.getLogger(__name__)

GAME = "Reacher-v5"
KIND = "reacher policy"
NOISE = 0.1
LEARNING_RATE = 1e-3
"""Falls linearly to a hundredth of it."""
TD3_SETTINGS: dict[str, Any] = {
    "learning_starts": 1_000,
    "gradient_steps": 2,
    "gamma": 0.95,
    "target_policy_noise": 0.05,
    "target_noise_clip": 0.1,
    "policy_kwargs": {"net_arch": [128, 128]},
}
"""Differences from the defaults of stable-baselines3, which do not learn to reach most targets in 20,000 steps."""
SCALE = np.array([1, 1, 1, 1, 5, 5, 0.1, 0.1, 10, 10])
"""Scales angles, target, velocities and vector to the target to similar ranges; the task needs a precision of 0.02."""
EVALUATION_EPISODES = 100


class ReacherPolicy:
    """The deterministic policy mu_d."""

    def __init__(self, checkpoint: Checkpoint):
        self.values = checkpoint.values
        self._layers = [
            (checkpoint.tensors[f"{i}.weight"].double().numpy(), checkpoint.tensors[f"{i}.bias"].double().numpy())
            for i in range(len(checkpoint.tensors) // 2)
        ]

    def __call__(self, state: Array) -> Array:
        """Actions [..., 2] in [-1, 1] for states [..., 10]."""
        *hidden, last = self._layers
        x = state
        for weight, bias in hidden:
            x = np.maximum(x @ weight.T + bias, 0)
        return np.tanh(x @ last[0].T + last[1])


def reacher_policy(path: Path, steps: int, seed: int, stop: threading.Event) -> ReacherPolicy:
    """The policy saved at `path`; without one, a policy is trained and saved there."""
    try:
        kept = read_checkpoint(path)
        if (kept.values.get("kind"), kept.values.get("steps"), kept.values.get("seed")) == (KIND, steps, seed):
            return ReacherPolicy(kept)
        log.warning("%s holds no policy of %d steps with seed %d; training one", path, steps, seed)
    except CheckpointError as error:
        if path.exists():
            log.warning("%s; training a new policy", error)
    write_checkpoint(path, train_policy(steps, seed, stop))
    return ReacherPolicy(read_checkpoint(path))


def train_policy(steps: int, seed: int, stop: threading.Event) -> Checkpoint:
    import stable_baselines3  # Takes seconds, and most uses find the policy trained.
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(1)  # Networks this small are slower on several threads.
    progress = Progress("training TD3", steps, unit="step")

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            progress.update(self.num_timesteps)
            return not stop.is_set()

    space = gymnasium.spaces.Box(-np.inf, np.inf, SCALE.shape)
    env = gymnasium.wrappers.TransformObservation(gymnasium.make(GAME), lambda state: state * SCALE, space)
    algorithm = stable_baselines3.TD3(
        "MlpPolicy",
        env,
        learning_rate=lambda left: max(left * LEARNING_RATE, 1e-5),
        action_noise=NormalActionNoise(np.zeros(2), np.full(2, NOISE)),
        buffer_size=steps,
        seed=seed,
        device="cpu",
        **TD3_SETTINGS,
    )
    try:
        algorithm.learn(steps, callback=Watch())
    finally:
        progress.close()
        env.close()
    if stop.is_set():
        raise StopRequested
    linear = [module for module in algorithm.policy.actor.mu if isinstance(module, nn.Linear)]
    tensors: dict[str, Tensor] = {}
    for i, module in enumerate(linear):
        tensors |= {f"{i}.weight": module.weight.detach().clone(), f"{i}.bias": module.bias.detach().clone()}
    tensors["0.weight"] *= torch.from_numpy(SCALE)  # So that the policy takes states as they are.
    returns = evaluate_policy(ReacherPolicy(Checkpoint(tensors, {})), seed)
    values = {
        "kind": KIND,
        "steps": steps,
        "seed": seed,
        "return_mean": float(returns.mean()),
        "return_standard_error": float(returns.std(ddof=1) / np.sqrt(len(returns))),
        "evaluation_episodes": len(returns),
    }
    return Checkpoint(tensors, values)


def evaluate_policy(policy: ReacherPolicy, seed: int) -> Array:
    """Returns of whole episodes of Reacher-v5, with its limit of 50 steps and without noise."""
    env = gymnasium.make(GAME)
    returns = []
    for episode in range(EVALUATION_EPISODES):
        state, _ = env.reset(seed=seed + episode)
        total, over = 0.0, False
        while not over:
            state, reward, terminated, truncated, _ = env.step(policy(state))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return np.array(returns)
