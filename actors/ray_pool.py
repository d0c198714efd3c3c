"""Actors in processes of their own, through Ray.

One loop explains everything: keep a bounded number of rollout calls under way per actor, wait for whichever is ready, and
hand that actor the newest weights with its next call. Back-pressure, bounded memory, bounded policy lag and recovery from a
dead actor follow from it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayActorError, RayTaskError
from torch import Tensor

from actors.cluster import cause_of, start_ray
from actors.pool import PoolError, PoolHealth, PoolReport, StopRequested
from actors.resources import Resources
from actors.rollout import RolloutWorker
from actors.trajectory import Collator, Trajectory
from agents.batch import Batch
from configs.train import TrainConfig
from envs.registry import game_spec

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
MAX_FAILURES = 3
"""Failures of one actor in a row, without a trajectory between them, after which the cause is not bad luck."""


class RolloutActor:
    """A rollout worker that one core serves."""

    def __init__(self, config: TrainConfig, num_envs: int, seed: int):
        torch.set_num_threads(1)
        self._worker = RolloutWorker(config, num_envs, seed)
        self._version = -1

    def rollout(self, weights: np.ndarray, version: int) -> Trajectory:
        if version != self._version:
            # Ray's memory is read-only, which torch warns of; the weights are only copied from it.
            self._worker.set_weights(torch.from_numpy(weights.view()), version)
            self._version = version
        return self._worker.rollout()


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
        self._actors: list[Any] = []
        self._failures = [0] * resources.num_actors
        self._memory = [0] * resources.num_actors
        self._under_way: dict[ray.ObjectRef, int] = {}
        self._published: tuple[Tensor, int] | None = None
        self._stored: tuple[ray.ObjectRef, int] | None = None
        self._collator = Collator(config.learner.batch_size)
        self._report = PoolReport()

    def next_batch(self) -> Batch:
        if not self._actors:
            self._start()
        start = time.perf_counter()
        while not self._collator.ready:
            if self._stop.is_set():
                raise StopRequested
            ready, _ = ray.wait(list(self._under_way), timeout=POLL_SECONDS)
            for reference in ready:
                # A failed actor takes its other calls with it, so a ready reference may be gone by now.
                if reference in self._under_way:
                    self._receive(reference)
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
        alive = sum(failures == 0 for failures in self._failures)
        return PoolHealth(alive=alive, restarted=self._restarts, memory_bytes=sum(self._memory))

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Only how many actors there have been: games under way are not saved, and new ones must not repeat their seeds."""
        return {}, {"created": self._created}

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """The actors of a resumed run are new ones, with seeds that no earlier actor had."""
        if self._actors:
            raise RuntimeError("the pool has already begun to play")
        self._created = int(values["created"])

    def close(self) -> None:
        if self._owns_ray:
            ray.shutdown()
        for actor in self._actors if not self._owns_ray else ():
            ray.kill(actor)

    def _start(self) -> None:
        self._actors = [self._create() for _ in range(self._resources.num_actors)]
        for _ in range(self._config.actors.in_flight):
            for slot in range(len(self._actors)):
                self._submit(slot)

    def _create(self) -> Any:
        seed = int(np.random.SeedSequence([self._config.run.seed, self._created]).generate_state(1)[0])
        self._created += 1
        return self._remote.remote(self._config, self._resources.envs_per_actor, seed)

    def _submit(self, slot: int) -> None:
        if self._published is None:
            raise RuntimeError("weights must be published before the first batch is asked for")
        weights, version = self._published
        if self._stored is None or self._stored[1] != version:
            self._stored = (ray.put(weights.numpy()), version)
        self._under_way[self._actors[slot].rollout.remote(*self._stored)] = slot

    def _receive(self, reference: ray.ObjectRef) -> None:
        slot = self._under_way.pop(reference)
        try:
            trajectory = ray.get(reference)
        except (RayActorError, RayTaskError) as error:
            self._replace(slot, error)
            return
        self._failures[slot] = 0
        self._memory[slot] = trajectory.cost.memory_bytes
        self._submit(slot)
        self._collator.add(trajectory)
        self._report.add(trajectory)

    def _replace(self, slot: int, error: Exception) -> None:
        cause = cause_of(error)
        self._failures[slot] += 1
        if self._failures[slot] >= MAX_FAILURES:
            raise PoolError(f"actor {slot} failed {MAX_FAILURES} times in a row: {cause}") from error
        log.warning("actor %d died and is replaced: %s", slot, cause)
        self._under_way = {other: owner for other, owner in self._under_way.items() if owner != slot}
        ray.kill(self._actors[slot])
        self._actors[slot] = self._create()
        self._restarts += 1
        for _ in range(self._config.actors.in_flight):
            self._submit(slot)
