"""Both pools on an environment whose frames encode the game and the step."""

import copy
import threading
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
import ray
import torch

from actors.ray_pool import RayPool
from actors.resources import Resources
from actors.serial_pool import SerialPool
from actors.trajectory import Collator
from agents.agent import flat_weights
from configs.errors import StopRequested
from envs.fields import FIELDS
from learners.learner import Learner
from tests.helpers.running import rollout_actors

COUNTER = "gym:tests.helpers.counter:Counter-v0"


@pytest.fixture
def make_pool(make_config):
    pools = []

    def make(kind, actors=1, **overrides):
        config = make_config(pool=kind, **overrides)
        resources = Resources(num_actors=actors, envs_per_actor=config.learner.batch_size, learner_threads=1)
        pool = SerialPool(config) if kind == "serial" else RayPool(config, resources, threading.Event())
        pools.append(pool)
        learner = Learner(config, pool.spec)
        pool.publish(learner.weights(), learner.version)
        return pool, learner

    yield make
    for pool in pools:
        pool.close()


@pytest.mark.parametrize("kind", ["serial", "ray"])
def test_batches_are_consistent_within_and_across_unrolls(make_pool, kind):
    pool, learner = make_pool(kind, game=COUNTER, lstm_size=8, in_flight=1)
    batches = [pool.next_batch() for _ in range(6)]
    ends = {"terminated": 0, "truncated": 0}
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        observations = batch.observations().numpy()
        step, number = observations[:, :, -1, 0, 0].astype(int) - 1, observations[:, :, -1, 20, 0]
        for t, b in np.ndindex(*batch.action.shape):
            if batch.valid[t, b]:
                assert step[t + 1, b] == step[t, b] + 1
                assert number[t + 1, b] == number[t, b]
                assert batch.reward[t, b] == step[t + 1, b]
                assert not batch.first[t + 1, b]
                ended = t + 1 < len(batch.valid) and not batch.valid[t + 1, b]
                if ended:
                    terminates = number[t, b] % 2 == 0
                    assert batch.discount[t, b] == (0.0 if terminates else 1.0)
                    ends["terminated" if terminates else "truncated"] += 1
            else:
                assert step[t + 1, b] == 0
                assert batch.first[t + 1, b]
                assert batch.reward[t, b] == batch.discount[t, b] == 0.0
                assert (observations[t + 1, b, :-1] == 0).all()
        if following is not None:
            assert np.array_equal(observations[-1], following.stack.numpy())
            assert torch.equal(batch.first[-1], following.first[0])
            state = batch.core_state
            for t in range(len(batch.action)):
                _, state = learner.agent.act(torch.from_numpy(observations[t]), batch.first[t], state)
            assert torch.allclose(state, following.core_state, atol=1e-5)
    assert min(ends.values()) > 2


@pytest.mark.parametrize("kind", ["serial", "ray"])
def test_rollouts_use_the_newest_weights_and_record_their_version(make_pool, kind):
    pool, learner = make_pool(kind, in_flight=2)
    older, newer = learner.agent, copy.deepcopy(learner.agent)
    with torch.no_grad():
        for parameter in newer.parameters():
            parameter.mul_(1.5).add_(0.01)
    batches = [pool.next_batch()]
    pool.publish(flat_weights(newer), 7)
    batches += [pool.next_batch() for _ in range(4)]
    seen = [int(batch.version[0]) for batch in batches]
    assert (seen[0], seen[-1]) == (0, 7)
    assert seen == sorted(seen)
    assert seen.count(0) <= 3  # The first, and those that were in flight.
    for batch, version in zip(batches, seen, strict=True):
        used, other = (newer, older) if version else (older, newer)
        assert torch.allclose(batch.logits, used.unroll(batch).logits[:-1], atol=1e-5)
        assert not torch.allclose(batch.logits, other.unroll(batch).logits[:-1], atol=1e-3)


def test_serial_pools_are_deterministic_given_the_seed(make_pool):
    def play(seed):
        pool, _ = make_pool("serial", seed=seed)
        return [pool.next_batch() for _ in range(5)]

    ours, same, other = play(1), play(1), play(2)
    for a, b in zip(ours, same, strict=True):
        for name in FIELDS:
            assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert not all(torch.equal(a.frames, b.frames) for a, b in zip(ours, other, strict=True))


def test_a_serial_rollout_of_more_games_than_a_batch_gives_several_batches(make_pool):
    pool, learner = make_pool("serial", game=COUNTER, envs_per_actor=8)
    versions = []
    for version in range(1, 5):
        versions.append(pool.next_batch().version.tolist())
        pool.publish(learner.weights(), version)
    assert versions == [[0] * 4, [0] * 4, [2] * 4, [2] * 4]
    assert pool.report().rollout_seconds > 0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("action", lambda action: action + 10**6),
        ("action", lambda action: action[:1]),
        ("reward", lambda reward: reward * float("nan")),
        ("frames", lambda frames: frames.float()),
        ("stack", lambda stack: stack[..., :1]),
        ("version", lambda version: version[:1]),
    ],
)
def test_waiting_trajectories_of_a_checkpoint_are_checked(make_pool, name, change):
    pool, _ = make_pool("serial", envs_per_actor=12)
    pool.next_batch()
    tensors, values = pool.state_dict()
    pool.load_state_dict(tensors, values)
    with pytest.raises(ValueError, match="waiting trajectory"):
        pool.load_state_dict(tensors | {f"waiting.{name}": change(tensors[f"waiting.{name}"])}, values)


@pytest.mark.parametrize(
    "given", ["a core", *(pytest.param(name, marks=pytest.mark.slow) for name in ("a core that is not there", "none"))]
)
def test_an_actor_is_pinned_to_its_core_if_it_has_one(make_pool, monkeypatch, given):
    usable = psutil.Process().cpu_affinity()
    monkeypatch.setattr("actors.ray_pool.cores_to_pin", lambda resources: [1000] if "not there" in given else usable[-1:])
    pool, _ = make_pool("ray", pin_actors=given != "none")
    pool.next_batch()
    (actor,) = rollout_actors()
    assert actor.cpu_affinity() == (usable[-1:] if given == "a core" else usable)


@pytest.mark.slow
def test_a_local_ray_records_no_task_events(make_pool):
    pool, _ = make_pool("ray")
    pool.next_batch()
    time.sleep(2.5)  # Ray sends records once a second.
    assert ray.timeline() == []


def test_a_stop_request_interrupts_next_batch(make_config):
    stop = threading.Event()
    pool = RayPool(make_config(), Resources(1, 4, 1), stop)
    try:
        pool.publish(Learner(make_config(), pool.spec).weights(), 0)
        stop.set()
        with pytest.raises(StopRequested):
            pool.next_batch()
    finally:
        pool.close()


def test_a_resumed_ray_pool_uses_new_seeds(make_pool):
    pool, _ = make_pool("ray")
    first = pool.next_batch()
    _, values = pool.state_dict()
    pool.close()
    again, _ = make_pool("ray")
    again.load_state_dict({}, values)
    assert not torch.equal(again.next_batch().frames, first.frames)


def test_collation_keeps_every_column_once_and_in_order(make_pool):
    pool, _ = make_pool("serial", batch_size=6)
    trajectories = [replace(pool._worker.rollout(), version=number) for number in range(4)]
    for number, trajectory in enumerate(trajectories):
        trajectory.action[:] = np.arange(6) + 6 * number
    collator, seen, versions = Collator(4), [], []
    for trajectory in trajectories:
        collator.add(trajectory)
        while collator.ready:
            batch = collator.batch()
            seen += batch.action[0].tolist()
            versions += batch.version.tolist()
            assert batch.frames.shape == (5, 4, 1, 40, 40)
    assert seen == list(range(24))
    assert versions == [number for number in range(4) for _ in range(6)]
