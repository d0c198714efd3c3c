"""A training run from its first frame to its result: the loop, its checkpoints, its metrics."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch

from actors.pool import ActorPool, PoolError, PoolReport, StopRequested
from actors.resources import Resources, available_cores, choose_resources
from actors.serial_pool import SerialPool
from configs.train import TrainConfig
from learners.allocator import keep_freed_memory
from learners.checkpoint import Checkpoint, CheckpointError
from learners.learner import Learner, choose_device
from learners.metrics import EpisodeStatistics, Means, MetricsWriter
from learners.run_directory import RunDirectory, provenance
from studies.evaluation import play_games
from studies.progress import Progress

log = logging.getLogger(__name__)


@dataclass
class TrainingRun:
    """A run in progress: what a checkpoint holds, and where it goes."""

    config: TrainConfig
    directory: RunDirectory
    pool: ActorPool
    learner: Learner
    episodes: EpisodeStatistics = field(default_factory=EpisodeStatistics)
    means: Means = field(default_factory=Means)
    elapsed: float = 0.0
    """Seconds of training, over all the processes that had a part in it."""

    def save(self) -> None:
        tensors, values = self.pool.state_dict()
        is_best = self.episodes.improved()
        checkpoint = Checkpoint(
            {f"learner.{name}": tensor for name, tensor in self.learner.state_dict().items()}
            | {f"pool.{name}": tensor for name, tensor in tensors.items()}
            | {"torch_rng": torch.get_rng_state()},
            {
                "pool": values,
                "episodes": self.episodes.state_dict(),
                "means": self.means.state_dict(),
                "elapsed": self.elapsed,
            },
        )
        self.directory.checkpoints(self.config.run.keep_checkpoints).save(checkpoint, self.learner.frame, is_best)

    def load(self, checkpoint: Checkpoint) -> None:
        try:
            self.learner.load_state_dict(checkpoint.group("learner"))
            self.pool.load_state_dict(checkpoint.group("pool"), checkpoint.values["pool"])
            self.episodes.load_state_dict(checkpoint.values["episodes"])
            self.means.load_state_dict(checkpoint.values["means"])
            self.elapsed = float(checkpoint.values["elapsed"])
            torch.set_rng_state(checkpoint.tensors["torch_rng"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the newest checkpoint of {self.directory.path} does not fit: {error}") from None


def train(config: TrainConfig, stop: threading.Event, cores: int = 0) -> dict[str, Any] | None:
    """Trains to the last frame, plays the final games and writes the result; None if `stop` was set before that.

    `cores` are all that it may use; 0 for those of the machine.
    """
    if config.run.resume:
        directory = RunDirectory.open(config.run_path)
        checkpoint = directory.checkpoints(config.run.keep_checkpoints).newest()
    else:
        directory, checkpoint = RunDirectory.unused(config.run_path), None
    keep_freed_memory()
    device = choose_device(config.learner.device)
    cores = cores or available_cores()
    resources = choose_resources(config, cores, gpu=device.type == "cuda")
    torch.set_num_threads(resources.learner_threads if config.actors.pool == "ray" else 1)
    pool = make_pool(config, resources, stop)
    try:
        run = TrainingRun(config, directory, pool, Learner(config, pool.spec))
        if checkpoint is not None:
            run.load(checkpoint)
        directory.write_config(config)
        print(f"run directory: {directory.path} (tensorboard --logdir {directory.path})", file=sys.stderr, flush=True)
        try:
            _train_to_end(run, stop)
        except PoolError:
            run.save()
            raise
        run.save()
    finally:
        pool.close()
    if run.learner.frame < config.run.frames or stop.is_set():
        return None
    return _conclude(run, stop, cores)


def make_pool(config: TrainConfig, resources: Resources, stop: threading.Event) -> ActorPool:
    if config.actors.pool == "serial":
        return SerialPool(config)
    from actors.ray_pool import RayPool  # Ray takes seconds to import, and serial runs do without it.

    return RayPool(config, resources, stop)


def _train_to_end(run: TrainingRun, stop: threading.Event) -> None:
    """Updates until the last frame or a request to stop, logging and saving on the way."""
    config, pool, learner = run.config, run.pool, run.learner
    log_frames = config.run.log_frames or max(1, min(50_000, config.run.frames // 100))
    next_log = (learner.frame // log_frames + 1) * log_frames
    picture_frames = config.run.picture_frames or max(100_000, config.run.frames // 20)
    next_pictures = (learner.frame // picture_frames + 1) * picture_frames
    elapsed_before, start = run.elapsed, time.monotonic()
    last_save = start
    clock = Clock(learner.frame)
    writer = MetricsWriter(run.directory.path, from_frame=learner.frame)
    writer.text("config", f"```\n{json.dumps(config.to_dict(), indent=2)}\n```", learner.frame)
    progress = Progress(config.env.game, config.run.frames, learner.frame)
    pool.publish(learner.weights(), learner.version)
    try:
        while learner.frame < config.run.frames and not stop.is_set():
            batch = pool.next_batch()
            with clock.measure("learn"):
                run.means.add(learner.step(batch))
            with clock.measure("publish"):
                pool.publish(learner.weights(), learner.version)
            report = pool.report()
            run.episodes.add(report.episodes)
            clock.add(report)
            run.elapsed = elapsed_before + time.monotonic() - start
            if learner.frame >= next_log:
                next_log = (learner.frame // log_frames + 1) * log_frames
                scalars = run.means.take() | run.episodes.metrics(pool.spec.frames_per_step)
                scalars |= clock.take(learner.frame) | {"charts/wall_seconds": run.elapsed}
                writer.write(learner.frame, scalars | health_metrics(pool))
                writer.histograms(learner.frame, learner.histograms)
            if learner.frame >= next_pictures:
                next_pictures = (learner.frame // picture_frames + 1) * picture_frames
                writer.pictures(learner.frame, learner.pictures())
            score = run.episodes.mean_score
            progress.update(learner.frame, "" if math.isnan(score) else f"return {score:.1f}")
            if time.monotonic() - last_save >= 60 * config.run.checkpoint_minutes:
                run.save()
                last_save = time.monotonic()
        writer.pictures(learner.frame, learner.pictures())
    except StopRequested:
        log.info("stopping at frame %d", learner.frame)
    finally:
        progress.close()
        writer.close()


class Clock:
    """Where the time between two lines of metrics went."""

    def __init__(self, frame: int):
        self._start = time.perf_counter()
        self._frame = frame
        self._learner: dict[str, float] = defaultdict(float)
        self._actors: dict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._learner[part] += time.perf_counter() - start

    def add(self, report: PoolReport) -> None:
        self._learner["wait"] += report.wait_seconds
        self._learner["collate"] += report.collate_seconds
        self._actors["env"] += report.env_seconds
        self._actors["inference"] += report.inference_seconds
        self._actors["all"] += report.rollout_seconds

    def take(self, frame: int) -> dict[str, float]:
        """Fractions of the learner's and of the actors' time since the last call, and the speed."""
        wall = time.perf_counter() - self._start
        metrics = {f"time/{part}": seconds / wall for part, seconds in self._learner.items()}
        if total := self._actors.pop("all"):
            metrics |= {f"time/actor_{part}": seconds / total for part, seconds in self._actors.items()}
        metrics["charts/frames_per_second"] = (frame - self._frame) / wall
        self._start, self._frame = time.perf_counter(), frame
        self._learner.clear()
        self._actors.clear()
        return metrics


def health_metrics(pool: ActorPool) -> dict[str, float]:
    health = pool.health()
    return {
        "actors/alive": health.alive,
        "actors/restarted": health.restarted,
        "memory/learner_mb": psutil.Process().memory_info().rss / 2**20,
        "memory/actors_mb": health.memory_bytes / 2**20,
    }


def _conclude(run: TrainingRun, stop: threading.Event, cores: int) -> dict[str, Any] | None:
    config, learner = run.config, run.learner
    evaluation = None
    if config.run.eval_episodes:
        try:
            evaluation = play_games(learner.agent, config, config.run.eval_episodes, config.run.seed, stop, cores)
        except StopRequested:
            return None
    score = run.episodes.mean_score
    result = {
        "game": config.env.game,
        "protocol": config.env.protocol,
        "task": config.task,
        "seed": config.run.seed,
        "frames": learner.frame,
        "updates": learner.version,
        "games": run.episodes.games,
        "wall_seconds": run.elapsed,
        "frames_per_second": learner.frame / run.elapsed,
        "training_return": None if math.isnan(score) else score,
        "human_normalised": evaluation.summary()["human_normalised"] if evaluation else None,
        "evaluation": evaluation.summary() if evaluation else None,
        **provenance(),
    }
    run.directory.write_json(run.directory.result_path, result)
    return result
