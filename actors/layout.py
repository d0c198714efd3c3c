"""The layout of a run on a machine: learners, their threads, actors and games, from what a rollout and an update cost.

A serial rank plays and learns on one core, so no core ever waits for another kind of work; its policy lags behind by less
than `environments / batch_size` updates. A rank with Ray actors overlaps
them: it is limited by the slower of the two, and the policy lags behind by about

    lag = in_flight * actors * environments per actor / batch_size      (all of one rank)

updates. `choose_layout` predicts the speed of every layout and takes the fastest; of nearly equal ones the simplest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from actors.resources import Resources
from agents.threads import allowed_threads
from configs.train import TrainConfig

MAX_LEARNER_THREADS = 16
PREFERRED_MIN_ENVS, MAX_ENVS = 16, 32
"""Environments per actor: fewer make inference inefficient, more increase the policy lag."""
MIN_ENVS = 4
"""Least environments per actor or serial rank; below it overhead dominates."""
MAX_LAG = 8
"""Updates."""
THREAD_EXPONENT = 0.8
"""t threads make an update t^0.8 times as fast (measured: 1.65 to 1.75 times with two)."""
SERIAL_OVERHEAD = 1.1
"""Cost of a rollout in a process that also learns, whose caches each empties for the other, relative to one in an actor."""
CROWDING = 1.1
"""Cost of work where more processes than cores take turns, relative to that on a core of its own."""
CONTENTION = 1.1
"""Cost of an update while other ranks make theirs at the same time and share the memory bus."""
SUM_SECONDS_PER_BYTE, SUM_LATENCY = 2.5e-9, 5e-4
"""Of a sum over two ranks on one machine, with the time that one waits for the other."""
NETWORK_SECONDS_PER_BYTE, NETWORK_LATENCY = 4e-9, 1e-3
"""Of a sum over two ranks on two machines, at two gigabits a second."""
GPU_SPEED_UP = 30.0
"""Of an update on a GPU over one core; assumed, since none was measured."""
TOLERANCE = 0.03
"""Relative differences of predicted speeds that do not count."""


@dataclass(frozen=True)
class Costs:
    """Seconds that one core (or the GPU, for an update) takes per environment step, and what ranks exchange."""

    rollout: float
    update: float
    bytes_per_update: float = 0.0
    """Summed over ranks in an update, that of the questions included."""
    step_overhead: float = 0.0
    """Seconds of a step of a rollout however many environments it has."""
    update_overhead: float = 0.0
    """Seconds of an update however large its batch is."""
    checkpoint_bytes: int = 0
    """Size of the learner's part of a checkpoint."""

    def on_gpu(self) -> Costs:
        """With updates as fast as a GPU is assumed to make them."""
        return replace(self, update=self.update / GPU_SPEED_UP, update_overhead=self.update_overhead / GPU_SPEED_UP)

    def rollout_of(self, envs: int) -> float:
        """Per environment step, where `envs` environments step together."""
        return self.rollout + self.step_overhead / envs


@dataclass(frozen=True)
class Layout:
    learners: int
    pool: Literal["ray", "serial"]
    resources: Resources
    """Of each learner; a serial one has no actors and plays `envs_per_actor` games itself."""

    def applied_to(self, config: TrainConfig) -> TrainConfig:
        """The config with what has to stay the same when the run is resumed."""
        envs = config.actors.envs_per_actor
        if self.pool == "serial" and self.resources.envs_per_actor != config.learner.batch_size // self.learners:
            envs = self.resources.envs_per_actor
        return replace(
            config,
            learner=replace(config.learner, learners=self.learners),
            actors=replace(config.actors, pool=self.pool, envs_per_actor=envs),
        )

    def describe(self) -> str:
        """For instance `2 learners x (1 core, 16 games, serial)`."""
        threads = _counted(self.resources.learner_threads, "core")
        games = _counted(self.resources.envs_per_actor, "game")
        if self.pool == "serial":
            each = f"{threads}, {games}, serial"
        else:
            each = f"{threads}, {_counted(self.resources.num_actors, 'actor')} with {games}"
        return f"{_counted(self.learners, 'learner')} x ({each})"


def choose_layout(config: TrainConfig, costs: Costs, cores: int, gpus: int = 0, cores_here: int = 0) -> Layout:
    """The fastest layout on a number of cores and GPUs; what the config sets is kept.

    `cores_here` are those of the launching machine, if the others are elsewhere in a cluster.
    """
    found = [
        (predict(layout, costs, config, cores, gpus, cores_here).steps_per_second, layout)
        for layout in _layouts(config, cores, gpus, cores_here or cores)
    ]
    best = max(speed for speed, _ in found)
    return min((layout for speed, layout in found if speed >= (1 - TOLERANCE) * best), key=_complexity)


@dataclass(frozen=True)
class Prediction:
    """Speed of a layout, as the slowest of its parts allows."""

    steps_per_second: float
    seconds: dict[str, float]
    """Of each part per update, if nothing else were there; the parts overlap, except in a serial layout, whose sum counts."""
    lag: float
    """Updates by which the policy of a trajectory lags behind, at most in a serial layout, typically with actors."""

    @property
    def bottleneck(self) -> str:
        return max(self.seconds, key=self.seconds.__getitem__)


def predict(layout: Layout, costs: Costs, config: TrainConfig, cores: int, gpus: int = 0, cores_here: int = 0) -> Prediction:
    """The speed of a layout on a number of cores and GPUs; `cores_here` as in `choose_layout`."""
    steps = config.learner.unroll * config.learner.batch_size
    share, resources = steps / layout.learners, layout.resources
    exchange = 0.0
    if layout.learners > 1:
        volume = 2 * (layout.learners - 1) / layout.learners * costs.bytes_per_update
        over_network = 0 < cores_here < cores
        exchange = (NETWORK_LATENCY if over_network else SUM_LATENCY) * layout.learners
        exchange += (NETWORK_SECONDS_PER_BYTE if over_network else SUM_SECONDS_PER_BYTE) * volume
    rollout = costs.rollout_of(resources.envs_per_actor)
    batch = config.learner.batch_size / layout.learners
    if layout.pool == "serial":
        turns = CROWDING * layout.learners / cores if layout.learners > cores else 1.0
        contention = CONTENTION if layout.learners > 1 else 1.0
        seconds = {
            "rollouts": share * rollout * SERIAL_OVERHEAD * turns,
            "updates": (share * costs.update + costs.update_overhead) * contention * turns,
            "sums": exchange,
        }
        return Prediction(steps / sum(seconds.values()), seconds, math.ceil(resources.envs_per_actor / batch) - 1)
    speed_up = 1.0 if gpus else resources.learner_threads**THREAD_EXPONENT
    update = 0.0 if gpus else steps * costs.update + layout.learners * costs.update_overhead
    processes = layout.learners * (resources.num_actors + (0 if gpus else resources.learner_threads))
    turns = CROWDING if processes > cores else 1.0
    seconds = {
        "updates and sums": share * costs.update / speed_up + costs.update_overhead + exchange,
        "rollouts": share * rollout / resources.num_actors,
        "cores": (steps * rollout + update) * turns / cores,
    }
    lag = config.actors.in_flight * resources.num_actors * resources.envs_per_actor / batch
    return Prediction(steps / max(seconds.values()), seconds, lag)


def _layouts(config: TrainConfig, cores: int, gpus: int, cores_here: int) -> Iterator[Layout]:
    """All layouts that fit what the config sets, the number of cores and the bound of the lag."""
    learner, actors = config.learner, config.actors
    needs_actors = bool(actors.num_actors or learner.learner_threads or actors.ray_address)
    asked: Sequence[int] = [learner.learners] if learner.learners else range(1, max(1, gpus or cores) + 1)
    if actors.pool == "serial":
        asked = [learner.ranks]  # The same on every machine, since what is learnt depends on it.
    for learners in asked:
        batch = learner.batch_size // learners
        if learners > 1 and not learner.learners and (learner.batch_size % learners or batch < MIN_ENVS):
            continue
        if actors.pool == "serial" or (actors.pool == "auto" and not needs_actors and not gpus):
            more = 1 if actors.pool == "serial" else min(MAX_LAG, math.ceil(PREFERRED_MIN_ENVS / batch))
            yield Layout(learners, "serial", Resources(0, actors.envs_per_actor or more * batch, 1))
        if actors.pool != "serial":
            yield from _with_actors(config, learners, batch, max(1, cores // learners), gpus, cores_here)


def _with_actors(config: TrainConfig, learners: int, batch: int, cores: int, gpus: int, cores_here: int) -> Iterator[Layout]:
    """Layouts with Ray actors, `cores` per rank."""
    learner, actors = config.learner, config.actors
    most_games = MAX_LAG * batch // actors.in_flight
    most_actors = max(1, most_games // (actors.envs_per_actor or MIN_ENVS))
    most_threads = 1 if gpus else max(1, min(MAX_LEARNER_THREADS, cores - 1, cores_here))
    asked = [learner.learner_threads] if learner.learner_threads else range(1, most_threads + 1)
    for threads in dict.fromkeys(map(allowed_threads, asked)):
        number = actors.num_actors or max(1, min(cores - threads, most_actors))
        envs = min(MAX_ENVS, max(PREFERRED_MIN_ENVS, batch // number))
        envs = actors.envs_per_actor or max(1, min(envs, most_games // number))
        insisted = (
            actors.num_actors
            or learner.learner_threads
            or learner.learners
            or (learners == 1 and (gpus or actors.pool == "ray"))
        )
        if threads + number <= cores or insisted:
            yield Layout(learners, "ray", Resources(number, envs, threads))


def _complexity(layout: Layout) -> tuple[bool, int, int]:
    """Serial layouts are simpler, since their policy does not lag; then those with fewer processes."""
    resources = layout.resources
    return layout.pool == "ray", layout.learners * (1 + resources.num_actors), resources.learner_threads


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
