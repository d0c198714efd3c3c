"""NaN and infinity: where they are stopped, and who is named."""

import math

import gymnasium
import numpy as np
import pytest
import torch

from actors import ray_pool
from actors.serial_pool import SerialPool
from configs.errors import GameError, PoolError
from envs.gymnasium_games import GymnasiumGames
from envs.stream import EpisodeStream
from learners.learner import Learner, NonFiniteError
from learners.meta_gradient import MetaGradient
from tests.helpers.counter import Counter
from tests.helpers.fragile import STEPS
from training.loop import train
from training.storage.checkpoint import read_checkpoint

_ENTERED = ("meta.window", "meta.position")
"""A batch enters the window before its gradient is known."""


class Odd(Counter):
    """Gives what it is told to at its second step."""

    def __init__(self, reward=1.0, observation=None):
        self.reward, self.observation = reward, observation

    def step(self, action):
        image, reward, *rest = super().step(action)
        if self.step_count == 2:
            return image if self.observation is None else self.observation, self.reward, *rest
        return image, reward, *rest


gymnasium.register("Odd-v0", Odd)


def play_two_steps(**odd):
    games = GymnasiumGames("Odd-v0", 2)
    for env in games._envs:
        for name, value in odd.items():
            setattr(env.unwrapped, name, value)
    stream = EpisodeStream(games, seed=1)
    stream.reset()
    for _ in range(2):
        stream.step(np.array([1, 2]))


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_non_finite_reward_names_its_environment_and_action(reward):
    with pytest.raises(GameError, match=f"environment 0 gave the reward {reward} for action 1"):
        play_two_steps(reward=reward)


def test_an_invalid_observation_names_its_environment_and_action():
    with pytest.raises(GameError, match="environment 0 of Odd-v0 failed at action 1: TypeError: the observation is float64"):
        play_two_steps(observation=np.full((40, 40), math.nan))
    with pytest.raises(GameError, match=r"environment 0 of Odd-v0 failed at action 1: TypeError: the observation is uint8 .7."):
        play_two_steps(observation=np.zeros(7, dtype=np.uint8))


@pytest.mark.parametrize("pool", ["serial", "ray"])
def test_a_game_that_raises_ends_the_run_with_a_checkpoint(make_config, never, monkeypatch, pool):
    monkeypatch.setattr(ray_pool, "MAX_FAILURES", 1)
    config = make_config(game="gym:tests.helpers.fragile:Fragile-v0", pool=pool, num_actors=1, envs_per_actor=4, frames=1000)
    cause = r"environment \d of tests.helpers.fragile:Fragile-v0 failed at action \d: RuntimeError: the joystick came off"
    with pytest.raises(GameError if pool == "serial" else PoolError, match=cause):
        train(config, never)
    newest = max((config.run_path / "checkpoints").glob("frame_*"))
    assert 4 * STEPS <= read_checkpoint(newest).tensors["learner.counters"][0] < 1000


def poisoned(make_config, poison, updates, **overrides):
    """A learner after some updates, and the next batch, poisoned."""
    config = make_config(**overrides)
    pool = SerialPool(config)
    learner = Learner(config, pool.spec)
    for _ in range(updates):
        pool.publish(learner.weights(), learner.version)
        learner.step(pool.next_batch())
    batch = pool.next_batch()
    poison(batch)
    return learner, batch


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("task", "updates"), [("none", 1), ("reverse_gvf", 1), ("reverse_gvf", 2)])
def test_a_non_finite_batch_makes_no_update_and_is_named(make_config, task, updates, value):
    """Also as the outer batch of the meta-gradient, which with K = 2 is the third."""
    learner, batch = poisoned(
        make_config, lambda b: b.logits[0].fill_(value), updates, task=task, meta_interval=2, reward_clip=0.0
    )
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items() if not name.startswith(_ENTERED)}
    with pytest.raises(NonFiniteError, match=rf"the (policy|value) loss.* is .* at update {updates + 1}, frame {20 * updates}"):
        learner.step(batch)
    after = learner.state_dict()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name


def test_a_non_finite_meta_gradient_makes_no_update_and_names_the_parameter(make_config, never, monkeypatch):
    backpropagate = MetaGradient.backpropagate

    def poisoned_gradient(self, *arguments, **options):
        bars = backpropagate(self, *arguments, **options)
        bars[-1].view(-1)[0] = math.nan
        return bars

    monkeypatch.setattr(MetaGradient, "backpropagate", poisoned_gradient)
    config = make_config(task="reverse_gvf", meta_interval=2)
    with pytest.raises(NonFiniteError, match=r"the meta-gradient of the question network's \S+ is not finite at update 3"):
        train(config, never)
    newest = max((config.run_path / "checkpoints").glob("frame_*"))
    assert all(t.isfinite().all() for t in read_checkpoint(newest).tensors.values() if t.is_floating_point())
