"""Actors that are killed, that hang, and that break."""

import json
import os
import random
import re
import signal
import threading
import time

import psutil
import pytest
import ray
from ray._private.authentication.authentication_utils import is_token_auth_enabled

from actors import ray_pool
from actors.ray_pool import FAILURES_CLEARED_AFTER, MAX_FAILURES, FailureLog, RayPool
from actors.resources import Resources
from configs.errors import PoolError
from learners.learner import Learner
from tests.helpers.fragile import SOUND, STEPS
from tests.helpers.running import is_gone, rollout_actors
from training.loop import train
from training.storage.checkpoint import read_checkpoint


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


def test_killed_and_hanging_actors_are_replaced_while_the_others_continue(make_pool, caplog):
    pool = make_pool(2, actor_timeout=3.0)
    play_until(pool, lambda: all_alive(pool, 2, restarted=0))
    assert_private()

    for worker in rollout_actors():
        os.kill(worker.pid, signal.SIGKILL)
    play_until(pool, lambda: all_alive(pool, 2, restarted=2))
    assert pool.health().memory_bytes > 2**20

    # Until they are no longer suspected, so that the next failure is each slot's first.
    play_until(pool, lambda: not any(slot.failures for slot in pool._slots))
    hung = rollout_actors()[0]
    os.kill(hung.pid, signal.SIGSTOP)
    seconds = play_until(pool, lambda: pool.health().restarted == 3)
    play_until(pool, lambda: all_alive(pool, 2, restarted=3))
    play_until(pool, lambda: is_gone(hung), seconds=30)
    print(f"a hung actor was given up after {seconds:.1f} s, of which 3 s are its deadline")
    assert caplog.text.count("failed and is replaced") == 2  # Two died at the same time.
    assert "1 more actor failed in the same way" in caplog.text
    assert "it returned no trajectory for 3 s" in caplog.text


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


@pytest.mark.slow
def test_one_of_two_actors_always_fails_and_the_other_continues_until_the_limit(make_config, monkeypatch, tmp_path, never):
    monkeypatch.setenv(SOUND, str(tmp_path / "sound"))
    monkeypatch.setattr(ray_pool, "MAX_FAILURES", 3)
    monkeypatch.setattr(ray_pool, "BACKOFF_SECONDS", (0.0, 0.1))
    config = make_config(game="gym:tests.helpers.fragile:Fragile-v0", pool="ray", num_actors=2, envs_per_actor=4, frames=10**9)
    cause = r"environment \d of tests.helpers.fragile:Fragile-v0 failed at action \d: RuntimeError: the joystick came off"
    with pytest.raises(PoolError, match=rf"^actor [01] failed 3 times in the same way: GameError: {cause}$"):
        train(config, never)
    newest = read_checkpoint(max((config.run_path / "checkpoints").glob("frame_*")))
    frame = newest.tensors["learner.counters"][0]
    assert frame > 3 * 4 * 2 * STEPS  # More than the broken ones together could deliver, a new game for every step included.
    lines = [json.loads(line) for line in (config.run_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["frame"] for line in lines] == list(range(20, frame + 1, 20))
    assert lines[-1]["actors/restarted"] == 2


def test_repeated_failures_are_counted_and_restarts_back_off(make_config, monkeypatch, caplog, never):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "kill", lambda actor: None)
    pool = RayPool(make_config(pool="ray"), Resources(1, 4, 1), never)
    (slot,) = pool._slots
    for _ in range(MAX_FAILURES - 1):
        for kind in ("GameError", "timeout", "ActorDiedError"):
            pool._remove_failed(slot, kind, "cause")
    pauses = re.findall(r"is replaced(?: in (\d+) s)?: cause", caplog.text)
    assert pauses == ["", "1", "2", "4", "8", "16", "30"] + ["30"] * (3 * (MAX_FAILURES - 1) - 7)
    with pytest.raises(PoolError, match="actor 0 failed 8 times in the same way: it returned no trajectory"):
        pool._remove_failed(slot, "timeout", "it returned no trajectory")


def test_the_actors_of_a_lost_node_take_two_lines(caplog, monkeypatch):
    """The second when it is known how many there are; an actor that fails again, or in another way, has its own."""
    clock = [0.0]
    monkeypatch.setattr("actors.ray_pool.time.monotonic", lambda: clock[0])
    failures = FailureLog()
    for second, actor, kind in (
        (0, 0, "died"),
        (1, 1, "died"),
        (1, 2, "timeout"),
        (2, 2, "died"),
        (3, 0, "died"),
        (9, 3, "died"),
    ):
        clock[0] = second
        failures.add(actor, kind, f": {kind}")
    failures.add(4, "died", ": died")
    failures.flush(at_once=True)
    failures.flush()
    assert [record.getMessage() for record in caplog.records] == [
        "actor 0 failed and is replaced: died",
        "actor 2 failed and is replaced: timeout",
        "2 more actors failed in the same way (died) and will be replaced",
        "actor 0 failed and is replaced: died",
        "actor 3 failed and is replaced: died",
        "1 more actor failed in the same way (died) and will be replaced",
    ]


@pytest.mark.slow
def test_training_continues_while_forty_actors_are_killed(make_pool):
    pool, moments, recoveries = make_pool(2, game="pong", torso="nature", unroll=20), random.Random(0), []
    play_until(pool, lambda: all_alive(pool, 2, restarted=0))
    for kill in range(1, 41):
        os.kill(moments.choice(rollout_actors()).pid, signal.SIGKILL)
        recoveries.append(play_until(pool, lambda n=kill: all_alive(pool, 2, restarted=n)))
        play_until(pool, lambda: all(slot.num_trajectories >= FAILURES_CLEARED_AFTER for slot in pool._slots))
    print(f"{len(recoveries)} kills, {sorted(recoveries)[20]:.1f} s (median) until the new actor delivered")
