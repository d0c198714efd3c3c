"""Actors that are killed, that hang, and that break."""

import os
import random
import signal
import threading
import time

import psutil
import pytest
from ray._private.authentication.authentication_utils import is_token_auth_enabled

from actors.pool import PoolError
from actors.ray_pool import FORGIVEN_AFTER, MAX_FAILURES, RayPool
from actors.resources import Resources
from learners.learner import Learner
from tests.running import is_gone, rollout_actors


@pytest.fixture
def make_pool(make_config):
    pools = []

    def make(actors, **overrides):
        config = make_config(pool="ray", **overrides)
        pool = RayPool(config, Resources(actors, config.learner.batch_size, learner_threads=1), threading.Event())
        pools.append(pool)
        learner = Learner(config, pool.spec)
        pool.publish(learner.weights(), learner.version)
        return pool

    yield make
    for pool in pools:
        pool.close()


def play_until(pool, condition, seconds=120):
    """Takes batches until something is true; returns how long that took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + seconds
        pool.next_batch()
    return time.monotonic() - start


def all_alive(pool, actors, restarted):
    health = pool.health()
    return health.alive == actors and health.restarted == restarted


def test_actors_that_are_killed_or_hang_are_replaced_while_the_others_play(make_pool, caplog):
    pool = make_pool(2, actor_timeout=3.0)
    play_until(pool, lambda: all_alive(pool, 2, restarted=0))
    assert_private()

    for worker in rollout_actors():
        os.kill(worker.pid, signal.SIGKILL)
    play_until(pool, lambda: all_alive(pool, 2, restarted=2))
    assert pool.health().memory_bytes > 2**20

    # Until they are no longer suspected, so that the next failure is each place's first.
    play_until(pool, lambda: all(place.failures == 0 for place in pool._places))
    hung = rollout_actors()[0]
    os.kill(hung.pid, signal.SIGSTOP)
    seconds = play_until(pool, lambda: pool.health().restarted == 3)
    play_until(pool, lambda: all_alive(pool, 2, restarted=3))
    play_until(pool, lambda: is_gone(hung), seconds=30)
    print(f"a hung actor was given up after {seconds:.1f} s, of which 3 s are its deadline")
    assert caplog.text.count("failed and is replaced") == 3
    assert "it delivered nothing for 3 s" in caplog.text


def assert_private():
    """Whatever of Ray's listens, listens to this machine alone, and asks for a token."""
    listening = [
        connection.laddr.ip
        for process in (psutil.Process(), *psutil.Process().children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and "ray" in process.name() + " ".join(process.cmdline())
    ]
    assert len(listening) > 3
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
    assert is_token_auth_enabled()


def test_a_game_that_always_breaks_is_tried_again_with_pauses_and_stops_with_its_cause(make_pool, caplog):
    pool = make_pool(1, game="gym:tests.counter:Failing-v0")
    cause = r"GameError: environment \d of tests.counter:Failing-v0 failed at action \d: RuntimeError: the joystick came off"
    with pytest.raises(PoolError, match=rf"actor 0 failed {MAX_FAILURES} times in a row: {cause}"):
        pool.next_batch()
    assert caplog.text.count("failed and is replaced") == MAX_FAILURES - 1
    assert "is replaced in 1 s" in caplog.text
    assert "is replaced in 2 s" in caplog.text


@pytest.mark.slow
def test_forty_actors_are_killed_at_random_and_training_goes_on(make_pool):
    pool, moments, recoveries = make_pool(2, game="pong", torso="nature", unroll=20), random.Random(0), []
    play_until(pool, lambda: all_alive(pool, 2, restarted=0))
    for kill in range(1, 41):
        os.kill(moments.choice(rollout_actors()).pid, signal.SIGKILL)
        recoveries.append(play_until(pool, lambda n=kill: all_alive(pool, 2, restarted=n)))
        play_until(pool, lambda: all(place.delivered >= FORGIVEN_AFTER for place in pool._places))
    print(f"{len(recoveries)} kills, {sorted(recoveries)[20]:.1f} s (median) until the new actor delivered")
