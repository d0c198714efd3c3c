"""Actors in processes of their own, through Ray.

One loop explains everything: keep a bounded number of rollout calls under way per actor, wait for whichever is ready, and
hand that actor the newest weights with its next call. Back-pressure, bounded memory, bounded policy lag and recovery from a
dead actor follow from it. An actor that fails is ended and its place filled again, after a pause that doubles from failure to
failure; one that is silent for too long has failed. Meanwhile the others play on, until one place has failed too often in the
same way.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError
from torch import Tensor

from actors.cluster import cause_of, kind_of, start_ray, stop_ray
from actors.pool import PoolHealth, PoolReport
from actors.resources import Resources, cores_to_pin
from actors.rollout import RolloutWorker
from actors.trajectory import Collator, Trajectory
from agents.batch import Batch
from configs.errors import PoolError, StopRequested
from configs.train import TrainConfig
from envs.registry import game_spec

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
MAX_FAILURES = 8
"""Failures of one place in the same way and without success in between, after which the cause is not bad luck."""
FORGIVEN_AFTER = 20
"""Trajectories of a new actor after which its place is no longer suspected."""
PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds from a place's first, second, ... failure to the next attempt; from then on the last."""
START_SECONDS = 300.0
"""For an actor's process to start, which may have to wait for a cluster's cores, and to deliver for the first time."""


class RolloutActor:
    """A rollout worker that one core serves: any, or always the same."""

    def __init__(self, config: TrainConfig, num_envs: int, seed: int, core: int | None):
        torch.set_num_threads(1)
        if core is not None:
            with suppress(OSError):  # The core may have been taken away since; any other will do.
                os.sched_setaffinity(0, {core})  # Of this thread, and so of those that it will start.
        self._worker = RolloutWorker(config, num_envs, seed)
        self._version = -1

    def rollout(self, weights: np.ndarray, version: int) -> Trajectory:
        if version != self._version:
            # Ray's memory is read-only, which torch warns of; the weights are only copied from it.
            self._worker.set_weights(torch.from_numpy(weights.view()), version)
            self._version = version
        return self._worker.rollout()


@dataclass
class Place:
    """A place for an actor: who is in it now, and how that goes."""

    number: int
    core: int | None
    """To which its actors keep; None for any."""
    actor: Any = None
    calls: set[ray.ObjectRef] = field(default_factory=set)
    delivered: int = 0
    """Trajectories of the present actor."""
    heard: float = 0.0
    """When it was started or last delivered."""
    failures: Counter[str] = field(default_factory=Counter)
    """How often it failed in which way, since it was last known to work."""
    free_until: float = 0.0
    """Stays empty until then."""
    memory_bytes: int = 0


class RayPool:
    """Rollout actors on the Ray that this process is part of, or on a local one, started for this pool alone, or on the
    cluster at `config.actors.ray_address`."""

    def __init__(self, config: TrainConfig, resources: Resources, stop: threading.Event):
        self._config = config
        self._resources = resources
        self._stop = stop
        self.spec = game_spec(config.env.game, config.env.protocol)
        self._owns_ray = not ray.is_initialized()  # A trial of a grid is already inside of one.
        if self._owns_ray:
            start_ray(config.actors.ray_address, resources.num_actors)
        self._remote = ray.remote(num_cpus=1, max_restarts=0)(RolloutActor)
        self._created = 0
        self._restarts = 0
        pinned = self._owns_ray and config.actors.pin_actors and not config.actors.ray_address
        cores = cores_to_pin(resources) if pinned else []
        self._places = [Place(number, cores[number] if cores else None) for number in range(resources.num_actors)]
        self._under_way: dict[ray.ObjectRef, Place] = {}
        self._published: tuple[Tensor, int] | None = None
        self._stored: tuple[ray.ObjectRef, int] | None = None
        self._collator = Collator(config.learner.batch_size)
        self._report = PoolReport()

    def next_batch(self) -> Batch:
        start = time.perf_counter()
        while not self._collator.ready:
            if self._stop.is_set():
                raise StopRequested
            self._fill_places()
            self._receive_what_is_ready()
            self._end_the_silent()
        waited = time.perf_counter()
        batch = self._collator.batch()
        self._report.wait_seconds += waited - start
        self._report.collate_seconds += time.perf_counter() - waited
        return batch

    def publish(self, weights: Tensor, version: int) -> None:
        self._published = (weights, version)

    def report(self) -> PoolReport:
        report, self._report = self._report, PoolReport()
        return report

    def health(self) -> PoolHealth:
        return PoolHealth(
            alive=sum(place.actor is not None and place.delivered > 0 for place in self._places),
            restarted=self._restarts,
            memory_bytes=sum(place.memory_bytes for place in self._places),
        )

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Only how many actors there have been: games under way are not saved, and new ones must not repeat their seeds."""
        return {}, {"created": self._created}

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """The actors of a resumed run are new ones, with seeds that no earlier actor had."""
        if self._under_way:
            raise RuntimeError("the pool has already begun to play")
        self._created = int(values["created"])
        if self._created < 0:
            raise ValueError(f"there cannot have been {self._created} actors")

    def close(self) -> None:
        if self._owns_ray:
            stop_ray()
            return
        for place in self._places:
            if place.actor is not None:
                ray.kill(place.actor)

    def _fill_places(self) -> None:
        now = time.monotonic()
        empty = [place for place in self._places if place.actor is None and now >= place.free_until]
        for place in empty:
            place.actor, place.heard, place.delivered = self._create(place.core), now, 0
        for _ in range(self._config.actors.in_flight):
            for place in empty:
                self._submit(place)

    def _create(self, core: int | None) -> Any:
        seed = int(np.random.SeedSequence([self._config.run.seed, self._created]).generate_state(1)[0])
        self._created += 1
        return self._remote.remote(self._config, self._resources.envs_per_actor, seed, core)

    def _submit(self, place: Place) -> None:
        if self._published is None:
            raise RuntimeError("weights must be published before the first batch is asked for")
        weights, version = self._published
        if self._stored is None or self._stored[1] != version:
            self._stored = (ray.put(weights.numpy()), version)
        call = place.actor.rollout.remote(*self._stored)
        place.calls.add(call)
        self._under_way[call] = place

    def _receive_what_is_ready(self) -> None:
        if not self._under_way:
            self._stop.wait(POLL_SECONDS)  # All places are empty for now.
            return
        ready, _ = ray.wait(list(self._under_way), timeout=POLL_SECONDS)
        for call in ready:
            # A failed actor takes its other calls with it, so a ready one may be gone by now.
            if call in self._under_way:
                self._receive(call)

    def _receive(self, call: ray.ObjectRef) -> None:
        place = self._under_way.pop(call)
        place.calls.remove(call)
        try:
            trajectory = ray.get(call)
        except RayError as error:
            self._clear(place, kind_of(error), cause_of(error))
            return
        place.heard = time.monotonic()
        place.delivered += 1
        if place.delivered >= FORGIVEN_AFTER:
            place.failures.clear()
        place.memory_bytes = trajectory.cost.memory_bytes
        self._submit(place)
        self._collator.add(trajectory)
        self._report.add(trajectory)

    def _end_the_silent(self) -> None:
        timeout = self._config.actors.actor_timeout
        for place in self._places:
            patience = timeout if place.delivered else max(timeout, START_SECONDS)
            late = place.actor is not None and time.monotonic() - place.heard > patience
            # What is ready but not yet received, because the learner was busy, is no silence.
            if late and not ray.wait(list(place.calls), timeout=0)[0]:
                self._clear(place, "silent", f"it delivered nothing for {patience:g} s")

    def _clear(self, place: Place, kind: str, cause: str) -> None:
        """Ends a failed actor, also one that does not react any more, and leaves its place empty for a while."""
        ray.kill(place.actor)
        for call in place.calls:
            del self._under_way[call]
        place.calls.clear()
        place.actor, place.memory_bytes = None, 0
        place.failures[kind] += 1
        if place.failures[kind] >= MAX_FAILURES:
            raise PoolError(f"actor {place.number} failed {MAX_FAILURES} times in the same way: {cause}")
        pause = PAUSES[min(place.failures.total(), len(PAUSES)) - 1]
        place.free_until = time.monotonic() + pause
        self._restarts += 1
        log.warning("actor %d failed and is replaced%s: %s", place.number, f" in {pause:g} s" if pause else "", cause)
