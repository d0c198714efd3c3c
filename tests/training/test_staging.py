"""Batches reach the learner's device whole, in their order, and the next one is on its way before it is asked for."""

import time
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch

from actors import trajectory as trajectories
from actors.pool import PoolReport
from actors.ray_pool import RayPool
from actors.resources import Resources
from actors.rollout import RolloutWorker
from actors.trajectory import Collator
from learners.learner import Learner
from tests.helpers.pretend_device import DEFAULT_STREAM, DEVICE, PretendTensor
from tests.learners.test_device import SMALL, SPEC, batches, learner_on
from training.round import make_pool
from training.staging import StagedPool


class ScriptedPool:
    spec = SPEC

    def __init__(self, given, arrived):
        self.given, self.arrived = deque(given), arrived
        self.taken = 0

    def batch_ready(self):
        return bool(self.given) and self.taken < self.arrived

    def next_batch(self):
        self.taken += 1
        return self.given.popleft()

    def report(self):
        return PoolReport()


@pytest.mark.parametrize("arrived", [0, 1, 2, 10])
def test_batches_arrive_whole_and_in_order(arrived):
    expected = list(batches(4))
    pool = StagedPool(ScriptedPool(expected, arrived), DEVICE)
    for batch in expected:
        found = pool.next_batch()
        for name, value in vars(batch).items():
            tensor = getattr(found, name)
            assert isinstance(tensor, PretendTensor)
            assert torch.equal(tensor.cpu(), value), name
            assert any(tensor is recorded for recorded in DEFAULT_STREAM.recorded), name


def test_the_next_batch_is_on_its_way_while_the_last_is_used():
    first, second = batches(2)
    scripted = ScriptedPool([first, second], arrived=2)
    pool = StagedPool(scripted, DEVICE)
    pool.next_batch()
    assert scripted.taken == 2
    staged = pool._next.batch.frames
    assert not staged.cpu().any()  # The copy is not waited for before the batch is asked for.
    assert torch.equal(pool.next_batch().frames.cpu(), second.frames)


def test_a_learner_learns_the_same_from_staged_batches(make_config, monkeypatch):
    config = make_config(**SMALL)
    learners = [learner_on(DEVICE, config, monkeypatch) for _ in range(2)]
    pool = StagedPool(ScriptedPool(batches(4), arrived=10), DEVICE)
    for batch in batches(4):
        learners[0].step(batch)
        learners[1].step(pool.next_batch())
    assert learners[0].checksum() == learners[1].checksum()


def test_pinned_batches_equal_others(make_config, monkeypatch):
    worker = RolloutWorker(make_config(lstm_size=3), 3, seed=0)
    learner = Learner(make_config(lstm_size=3), worker.spec)
    worker.set_weights(learner.weights(), 0)
    rollouts = [replace(worker.rollout(), version=version) for version in range(3)]
    pinned = []

    def empty(*shape, pin_memory=False, **options):
        pinned.append(pin_memory)
        return torch.zeros(*shape, **options)  # Memory cannot be pinned without a GPU.

    found = []
    for pin_memory in (False, True):
        monkeypatch.setattr(trajectories.torch, "empty", empty)
        collator = Collator(4, pin_memory)
        for rollout in rollouts:
            collator.add(rollout)
        found.append([collator.batch(), collator.batch()])
    assert pinned
    assert all(pinned)
    for plain, other in zip(*found, strict=True):
        for name, value in vars(plain).items():
            assert value.dtype == getattr(other, name).dtype
            assert np.array_equal(value, getattr(other, name)), name


@pytest.mark.parametrize(("device", "kind"), [(torch.device("cpu"), RayPool), (DEVICE, StagedPool)])
def test_only_a_learner_on_a_device_stages_batches(make_config, never, monkeypatch, device, kind):
    made = []
    monkeypatch.setattr("training.round.choose_device", lambda name: device)
    monkeypatch.setattr(RayPool, "__init__", lambda pool, *given, **options: made.append(options))
    monkeypatch.setattr(RayPool, "spec", SPEC, raising=False)
    assert type(make_pool(make_config(pool="ray"), Resources(1, 4, 1), never)) is kind
    assert made == [{} if device.type == "cpu" else {"pin_memory": True}]


def test_a_ray_pool_says_when_a_batch_has_arrived(make_config, never):
    config = make_config(pool="ray")
    pool = RayPool(config, Resources(1, 4, 1), never)
    try:
        pool.publish(Learner(config, pool.spec).weights(), 0)
        assert not pool.batch_ready()
        pool.next_batch()
        deadline = time.monotonic() + 60
        while not pool.batch_ready():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        in_flight = len(pool._in_flight)
        assert in_flight == config.actors.in_flight
        pool._receive_ready = None  # Must not be needed.
        assert pool.next_batch().action.shape == (5, 4)
    finally:
        pool.close()
