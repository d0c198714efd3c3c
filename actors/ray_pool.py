"""The actor pool on Ray: each actor is a process.

`next_batch` keeps a bounded number of rollout calls in flight per actor, waits for whichever is ready, and passes the newest
weights with that actor's next call. Back-pressure, bounded memory, bounded policy lag and recovery from a dead actor follow.
An actor that fails or times out is killed and replaced with exponential backoff, while the others go on. The run fails when
one slot has failed MAX_FAILURES times in the same way.
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

from actors.cluster import NodeWatch, error_cause, error_kind, start_ray, stop_ray
from actors.nodes import check_software, software
from actors.pool import PoolHealth, PoolReport, rank_seed
from actors.resources import Resources, cores_to_pin
from actors.rollout import RolloutWorker
from actors.trajectory import Collator, Trajectory
from agents.batch import Batch
from configs.errors import NodeError, PoolError, StopRequested
from configs.train import TrainConfig
from envs.registry import game_spec

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
MAX_FAILURES = 8
"""Failures of one slot in the same way, without success in between, after which the run is given up."""
FAILURES_CLEARED_AFTER = 20
"""Trajectories of a new actor after which the failures of its slot no longer count."""
BACKOFF_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds from the first, second, ... failure of a slot to the next start; the last entry is used from then on."""
START_TIMEOUT = 300.0
"""Seconds for an actor to start, which may have to wait for cores of the cluster, and to return its first trajectory."""


class RolloutActor:
    """A single-threaded rollout worker in a process of its own, pinned to `core` if one is given."""

    def __init__(self, config: TrainConfig, num_envs: int, seed: int, core: int | None, expected: dict[str, str] | None = None):
        """`expected` are the versions of the launching machine, if it is another."""
        check_software(expected or {})
        torch.set_num_threads(1)
        if core is not None:
            with suppress(OSError):  # The core may be gone by now; then the actor runs on any.
                os.sched_setaffinity(0, {core})  # Threads started later inherit it.
        self._worker = RolloutWorker(config, num_envs, seed)
        self._version = -1

    def rollout(self, weights: np.ndarray, version: int) -> Trajectory:
        if version != self._version:
            # torch warns that Ray's buffer is read-only; the weights are only read.
            self._worker.set_weights(torch.from_numpy(weights.view()), version)
            self._version = version
        return self._worker.rollout()


@dataclass
class ActorSlot:
    """One of the pool's actors: its current process, the calls in flight and the failures so far."""

    number: int
    core: int | None
    """Core to which its actors are pinned; None for any."""
    actor: Any = None
    calls: set[ray.ObjectRef] = field(default_factory=set)
    num_trajectories: int = 0
    """Trajectories of the current actor."""
    last_heard: float = 0.0
    """Time of its start or of its last trajectory."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failures by kind, since the slot last had a working actor."""
    retry_at: float = 0.0
    """Time before which no new actor is started."""
    memory_bytes: int = 0


class FailureLog:
    """Logs failures of actors; those of more actors in the same way soon after, as of a lost node, become one line."""

    def __init__(self, seconds: float = 5.0):
        self._seconds = seconds
        self._open: dict[str, tuple[float, set[int]]] = {}
        """By kind: when a failure was logged, and the actors that have failed since, that one included."""

    def add(self, actor: int, kind: str, text: str) -> None:
        self.flush()
        _, actors = self._open.get(kind, (0.0, set()))
        if actors and actor not in actors:
            actors.add(actor)
            return
        self._log_others(kind)
        log.warning("actor %d failed and is replaced%s", actor, text)
        self._open[kind] = (time.monotonic(), {actor})

    def flush(self, at_once: bool = False) -> None:
        """Log what has been held back long enough, or all of it."""
        for kind, (since, _) in list(self._open.items()):
            if at_once or time.monotonic() - since >= self._seconds:
                self._log_others(kind)

    def _log_others(self, kind: str) -> None:
        _, actors = self._open.pop(kind, (0.0, set()))
        if len(actors) > 1:
            others = f"{len(actors) - 1} more actor{'' if len(actors) == 2 else 's'}"
            log.warning("%s failed in the same way (%s) and will be replaced", others, kind)


class RayPool:
    """Rollout actors on the Ray that this process belongs to, else on the cluster at `ray_address`, else on a local Ray."""

    def __init__(
        self,
        config: TrainConfig,
        resources: Resources,
        stop: threading.Event,
        rank: int = 0,
        actor: type[RolloutActor] = RolloutActor,
        pin_memory: bool = False,
    ):
        self._config = config
        self._actor_config = config.with_task("none")  # Actors need the torso, not the code of a task.
        self._resources = resources
        self._stop = stop
        self._rank = rank
        self.spec = game_spec(config.env.game, config.env.protocol)
        self._owns_ray = not ray.is_initialized()  # A trial of a sweep runs inside Ray already.
        if self._owns_ray:
            start_ray(config.actors.ray_address, resources.num_actors)
        self._nodes = NodeWatch() if config.actors.ray_address and rank == 0 else None
        self._remote = ray.remote(num_cpus=1, max_restarts=0)(actor)
        self._created = 0
        self._restarts = 0
        local = (self._owns_ray or config.learner.ranks > 1) and not config.actors.ray_address
        pinned = local and config.actors.pin_actors
        cores = cores_to_pin(resources) if pinned else []
        self._slots = [ActorSlot(number, cores[number] if cores else None) for number in range(resources.num_actors)]
        self._in_flight: dict[ray.ObjectRef, ActorSlot] = {}
        self._published: tuple[Tensor, int] | None = None
        self._weights_ref: tuple[ray.ObjectRef, int] | None = None
        self._collator = Collator(config.learner.batch_size // config.learner.ranks, pin_memory)
        self._report = PoolReport()
        self._software = software()
        self._received = False
        self._failure_log = FailureLog()

    def next_batch(self) -> Batch:
        start = time.perf_counter()
        for change in self._nodes.changes() if self._nodes is not None else []:
            log.warning(change)
        self._failure_log.flush()
        while not self._collator.ready:
            if self._stop.is_set():
                raise StopRequested
            self._start_missing_actors()
            self._receive_ready()
            self._restart_timed_out()
        waited = time.perf_counter()
        batch = self._collator.batch()
        self._report.wait_seconds += waited - start
        self._report.collate_seconds += time.perf_counter() - waited
        return batch

    def batch_ready(self) -> bool:
        """Whether the trajectories of the next batch have arrived; those that have are received."""
        while not self._collator.ready and self._in_flight:
            ready, _ = ray.wait(list(self._in_flight), timeout=0)
            if not ready:
                break
            self._receive(ready[0])
        return self._collator.ready

    def publish(self, weights: Tensor, version: int) -> None:
        self._published = (weights, version)

    def report(self) -> PoolReport:
        report, self._report = self._report, PoolReport()
        return report

    def health(self) -> PoolHealth:
        return PoolHealth(
            alive=sum(slot.actor is not None and slot.num_trajectories > 0 for slot in self._slots),
            restarted=self._restarts,
            memory_bytes=sum(slot.memory_bytes for slot in self._slots),
        )

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The number of actors created so far, so that new actors get new seeds; games in progress are not saved."""
        return {}, {"created": self._created}

    def load_state_dict(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue the count of actors: those of a resumed run have seeds that no earlier actor had."""
        if self._in_flight:
            raise RuntimeError("load_state_dict must be called before the first batch")
        self._created = int(values["created"])
        if self._created < 0:
            raise ValueError(f"the state is damaged: a pool cannot have created {self._created} actors")

    def close(self) -> None:
        self._failure_log.flush(at_once=True)
        if self._owns_ray:
            stop_ray()
            return
        for slot in self._slots:
            if slot.actor is not None:
                ray.kill(slot.actor)

    def _start_missing_actors(self) -> None:
        now = time.monotonic()
        empty = [slot for slot in self._slots if slot.actor is None and now >= slot.retry_at]
        for slot in empty:
            slot.actor, slot.last_heard, slot.num_trajectories = self._create(slot.core), now, 0
        for _ in range(self._config.actors.in_flight):
            for slot in empty:
                self._submit(slot)

    def _create(self, core: int | None) -> Any:
        seed = rank_seed(self._config.run.seed, self._rank, self._created)
        self._created += 1
        return self._remote.remote(self._actor_config, self._resources.envs_per_actor, seed, core, self._software)

    def _submit(self, slot: ActorSlot) -> None:
        if self._published is None:
            raise RuntimeError("publish weights before the first batch")
        weights, version = self._published
        if self._weights_ref is None or self._weights_ref[1] != version:
            self._weights_ref = (ray.put(weights.numpy()), version)
        call = slot.actor.rollout.remote(*self._weights_ref)
        slot.calls.add(call)
        self._in_flight[call] = slot

    def _receive_ready(self) -> None:
        if not self._in_flight:
            self._stop.wait(POLL_SECONDS)  # Every slot waits for its next start.
            return
        ready, _ = ray.wait(list(self._in_flight), timeout=POLL_SECONDS)
        for call in ready:
            # A failure drops all calls of its actor, so a ready call may be gone by now.
            if call in self._in_flight:
                self._receive(call)

    def _receive(self, call: ray.ObjectRef) -> None:
        slot = self._in_flight.pop(call)
        slot.calls.remove(call)
        try:
            trajectory = ray.get(call)
        except RayError as error:
            self._remove_failed(slot, error_kind(error), error_cause(error))
            return
        slot.last_heard = time.monotonic()
        slot.num_trajectories += 1
        self._received = True
        if slot.num_trajectories >= FAILURES_CLEARED_AFTER:
            slot.failures.clear()
        slot.memory_bytes = trajectory.cost.memory_bytes
        self._submit(slot)
        self._collator.add(trajectory)
        self._report.add(trajectory)

    def _restart_timed_out(self) -> None:
        timeout = self._config.actors.actor_timeout
        for slot in self._slots:
            allowed = timeout if slot.num_trajectories else max(timeout, START_TIMEOUT)
            late = slot.actor is not None and time.monotonic() - slot.last_heard > allowed
            # The learner may have been too busy to receive a result that is ready.
            if late and not ray.wait(list(slot.calls), timeout=0)[0]:
                if self._received and not slot.num_trajectories and _is_pending(slot.actor):
                    slot.last_heard = time.monotonic()
                    log.warning("actor %d waits for a free CPU of the cluster", slot.number)
                else:
                    self._remove_failed(slot, "timeout", f"it returned no trajectory for {allowed:g} s")

    def _remove_failed(self, slot: ActorSlot, kind: str, cause: str) -> None:
        """Kill a failed or hung actor, drop its calls, and schedule the start of the next one."""
        ray.kill(slot.actor)
        for call in slot.calls:
            del self._in_flight[call]
        slot.calls.clear()
        slot.actor, slot.memory_bytes = None, 0
        slot.failures[kind] += 1
        if kind == NodeError.__name__ and not self._received:
            raise PoolError(cause.partition(": ")[2])
        if slot.failures[kind] >= MAX_FAILURES:
            raise PoolError(f"actor {slot.number} failed {MAX_FAILURES} times in the same way: {cause}")
        pause = BACKOFF_SECONDS[min(slot.failures.total(), len(BACKOFF_SECONDS)) - 1]
        slot.retry_at = time.monotonic() + pause
        self._restarts += 1
        self._failure_log.add(slot.number, kind, f"{f' in {pause:g} s' if pause else ''}: {cause}")


def _is_pending(actor: Any) -> bool:
    """Whether an actor waits for a node that can take it."""
    try:
        return ray._private.state.actors(actor._actor_id.hex()).get("State") == "PENDING_CREATION"
    except (RayError, AttributeError, ValueError):
        return False
