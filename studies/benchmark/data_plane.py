"""The way of the data alone: ready-made rollouts of real size through the real pool and collation, and weights back.

Nothing is played and nothing is learnt, so the speed is the most that pool, object store and collation allow. Each batch is
answered with new weights of real size, which every actor loads before its next rollout, as in training.
"""

from __future__ import annotations

import threading
import time
from dataclasses import fields, replace
from typing import Any

import numpy as np
import ray
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from actors.layout import MAX_ENVS
from actors.ray_pool import RayPool, RolloutActor
from actors.resources import Resources, available_cores
from actors.trajectory import Trajectory
from agents.agent import Agent, flat_weights
from agents.batch import Batch
from agents.threads import set_threads
from configs.commands import BenchmarkConfig
from configs.errors import StopRequested
from configs.train import ActorConfig, AgentConfig, EnvConfig, LearnerConfig, TrainConfig
from envs.registry import game_spec
from learners.allocator import keep_freed_memory
from training.progress import counted, tell

WARM_UP_BATCHES = 250
"""Enough to have gone through the whole object store, whose pages every process maps when it first touches them."""
WINDOW_SECONDS = 1.0
"""The slowest window says what is sustained."""
BROADCASTS = (2, 200)
"""Numbers of actors that weights are sent to; processes take turns for those that are not there."""
BROADCAST_REPEATS = 3


class ReadyMadeActor(RolloutActor):
    """Plays once, then returns that rollout again and again; loads new weights as any actor does."""

    _ready: Trajectory | None = None

    def rollout(self, weights: np.ndarray, version: int) -> Trajectory:
        if self._ready is None:
            self._ready = super().rollout(weights, version)
        self.load(weights, version)
        return replace(self._ready, version=version, episodes=[])

    def load(self, weights: np.ndarray, version: int) -> None:
        if version != self._version:
            self._worker.set_weights(torch.from_numpy(weights.view()), version)
            self._version = version


def measure_data_plane(config: BenchmarkConfig, stop: threading.Event) -> dict[str, Any]:
    """Frames/s of the data plane, bytes per frame, the driver's time per rollout, and how long weights take to actors.

    Raises StopRequested if `stop` is set before the end.
    """
    keep_freed_memory()
    set_threads(1)
    training = TrainConfig(
        env=EnvConfig(game=config.game),
        agent=AgentConfig(torso=config.torso),
        learner=LearnerConfig(unroll=config.unroll, batch_size=config.batch_size),
        actors=ActorConfig(),
    )
    spec = game_spec(training.env.game, training.env.protocol)
    weights = flat_weights(Agent(spec, config.torso))
    cores = available_cores()
    # No core is kept for the learner, which computes nothing.
    resources = Resources(cores, min(config.batch_size, MAX_ENVS), learner_threads=1)
    tell(f"starting Ray with {counted(resources.num_actors, 'actor')} and ready-made rollouts")
    pool = RayPool(training, resources, stop, actor=ReadyMadeActor)
    try:
        moved = measure_batches(pool, weights, spec.frames_per_step, config.seconds)
        broadcasts = measure_broadcasts(training, weights, cores, stop)
    finally:
        pool.close()
    rollout_frames = resources.envs_per_actor * config.unroll * spec.frames_per_step
    frames = moved["frames"]
    return {
        **config.measured_with(),
        "cores": cores,
        "actors": resources.num_actors,
        "envs_per_actor": resources.envs_per_actor,
        "frames_per_second": frames / moved["seconds"],
        "slowest_frames_per_second": moved["slowest"],
        "updates_per_second": moved["updates"] / moved["seconds"],
        "bytes_per_frame": moved["bytes"] / frames,
        "megabytes_per_second": moved["bytes"] / moved["seconds"] / 1e6,
        "driver_seconds_per_rollout": moved["driver_seconds"] / frames * rollout_frames,
        "driver_share": moved["driver_seconds"] / moved["seconds"],
        "collate_seconds_per_rollout": moved["collate_seconds"] / frames * rollout_frames,
        "weights_bytes": weights.numel() * weights.element_size(),
        "broadcast": broadcasts,
    }


def measure_batches(pool: RayPool, weights: Tensor, frames_per_step: int, seconds: float) -> dict[str, float]:
    """Take batches for some seconds, and publish new weights after each.

    `driver_seconds` are those for which the driver's thread computed, waiting not included.
    """
    version = 0
    pool.publish(weights, version)

    def take() -> Batch:
        nonlocal version
        batch = pool.next_batch()
        version += 1
        pool.publish(weights, version)
        return batch

    for _ in range(WARM_UP_BATCHES):
        take()
    pool.report()
    frames = size = updates = 0
    speeds: list[float] = []
    start = window = time.perf_counter()
    busy, in_window = time.thread_time(), 0
    while (now := time.perf_counter()) - start < seconds or not speeds:
        if now - window >= min(WINDOW_SECONDS, seconds):
            speeds.append(in_window / (now - window))
            window, in_window = now, 0
        batch = take()
        updates += 1
        frames += batch.steps * frames_per_step
        in_window += batch.steps * frames_per_step
        size += sum(getattr(batch, item.name).nbytes for item in fields(batch))
    taken = time.perf_counter() - start
    return {
        "seconds": taken,
        "driver_seconds": time.thread_time() - busy,
        "collate_seconds": pool.report().collate_seconds,
        "frames": frames,
        "updates": updates,
        "bytes": size,
        "slowest": min(*speeds, frames / taken),
    }


def measure_broadcasts(config: TrainConfig, weights: Tensor, cores: int, stop: threading.Event) -> dict[str, dict[str, float]]:
    """Seconds from new weights to all of 2 and of 200 actors having loaded them, and how many of these are the driver's.

    There are no more processes than cores; each loads the weights as often as it takes for all actors.
    """
    remote: Any = ray.remote(num_cpus=0)(ReadyMadeActor)
    processes = [remote.remote(config, 1, seed, None) for seed in range(min(max(BROADCASTS), cores))]
    vector, version = weights.numpy(), 0
    found: dict[str, dict[str, float]] = {}
    try:
        ray.get([process.load.remote(vector, version) for process in processes])
        for actors in BROADCASTS:
            seconds, driver = [], []
            for _ in range(BROADCAST_REPEATS):
                if stop.is_set():
                    raise StopRequested
                start = time.perf_counter()
                reference = ray.put(vector)
                calls = [processes[n % len(processes)].load.remote(reference, version + n + 1) for n in range(actors)]
                version += actors
                driver.append(time.perf_counter() - start)
                ray.get(calls)
                seconds.append(time.perf_counter() - start)
            found[str(actors)] = {"seconds": min(seconds), "driver_seconds": min(driver)}
    finally:
        for process in processes:
            ray.kill(process)
    return found


def print_data_plane(result: dict[str, Any]) -> None:
    console = Console()
    title = f"data plane: {result['game']}, T {result['unroll']}, B {result['batch_size']}, {result['torso']} torso"
    table = Table("measured", title=title)
    table.add_column("value", justify="right")
    rows = {
        "frames/s": f"{result['frames_per_second']:,.0f}",
        "frames/s in the slowest second": f"{result['slowest_frames_per_second']:,.0f}",
        "updates/s, each with new weights": f"{result['updates_per_second']:,.1f}",
        "bytes per frame": f"{result['bytes_per_frame']:,.0f}",
        "MB/s": f"{result['megabytes_per_second']:,.0f}",
        "driver's CPU time per rollout": f"{1e3 * result['driver_seconds_per_rollout']:.2f} ms",
        "collation per rollout, wall time": f"{1e3 * result['collate_seconds_per_rollout']:.2f} ms",
        "driver busy": f"{result['driver_share']:.0%}",
    }
    for actors, times in result["broadcast"].items():
        rows[f"{result['weights_bytes'] / 1e6:.1f} MB of weights to {actors} actors"] = (
            f"{1e3 * times['seconds']:.1f} ms (driver {1e3 * times['driver_seconds']:.1f} ms)"
        )
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    actors, games = counted(result["actors"], "actor"), counted(result["envs_per_actor"], "game")
    console.print(f"{counted(result['cores'], 'core')}, {actors} with {games} each; nothing was played or learnt")
