"""A training run from its first frame to its result: the loop, its checkpoints, its metrics.

Once a run has begun, only its actors, its numbers or a request can stop it: a disk that refuses is tried again.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch

from actors.pool import ActorPool, PoolReport
from actors.resources import Resources, available_cores, choose_resources
from actors.serial_pool import SerialPool
from agents.initialisation import skip_initialisation
from agents.tasks import check_compiles
from agents.threads import set_threads
from configs.errors import CheckpointError, ConfigError, GameError, PoolError, RunError, StopRequested
from configs.shell import tensorboard_command
from configs.train import TrainConfig
from envs.registry import applied_protocol, built_in_game, game_spec
from learners.allocator import keep_freed_memory, release_freed_memory
from learners.learner import Learner, choose_device
from learners.optimiser import annealed, warmed_up
from training.checkpoint import Checkpoint
from training.evaluation import play_games
from training.files import explain
from training.metrics import EpisodeStatistics, Means, MetricsWriter
from training.progress import Progress, counted, tell
from training.run_directory import RunDirectory, provenance
from training.run_lock import locked
from training.tensorboard import custom_charts, write_hparams

log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
"""Between two attempts to save, while they fail."""
FINAL_GAMES_SEED = 1_000_000
"""Added to the seed for the final evaluation, whose games then differ from those of training."""


@dataclass
class TrainingRun:
    """The state of a run: everything that a checkpoint holds, and the run directory."""

    config: TrainConfig
    directory: RunDirectory
    pool: ActorPool
    learner: Learner
    episodes: EpisodeStatistics = field(default_factory=EpisodeStatistics)
    means: Means = field(default_factory=Means)
    elapsed: float = 0.0
    """Seconds of training, summed over resumptions."""

    def save(self, writer: MetricsWriter) -> None:
        """Flush the metrics, then write a checkpoint; raises OSError on failure."""
        writer.sync()
        best_before = self.episodes.best
        try:
            self._save()
        except OSError:
            self.episodes.best = best_before
            raise

    def save_or_warn(self, writer: MetricsWriter) -> bool:
        try:
            self.save(writer)
        except OSError as error:
            log.warning("no checkpoint could be saved at frame %d: %s", self.learner.frame, explain(error))
            return False
        return True

    def _save(self) -> None:
        is_best = self.episodes.improved()
        tensors, values = self.pool.state_dict()
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
            if not 0 <= self.elapsed < math.inf or (self.learner.frame and not self.elapsed):
                raise ValueError(f"{self.learner.frame} frames cannot have taken {self.elapsed} s")
            torch.set_rng_state(checkpoint.tensors["torch_rng"])
        except (AttributeError, LookupError, TypeError, ArithmeticError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the newest checkpoint of {self.directory.path} does not fit: {error}") from None


def train(config: TrainConfig, stop: threading.Event, cores: int = 0) -> dict[str, Any] | None:
    """Train to the last frame, run the final evaluation and write result.json; returns None if `stop` was set before.

    `cores` limits the cores used; 0 uses all.
    """
    with ExitStack() as stack:
        checkpoint = None
        if config.run.resume:
            directory = RunDirectory.open(config.run_path)
            stack.enter_context(locked(directory.path))
            checkpoint = _checkpoint_to_resume(directory, config.run.keep_checkpoints)
        else:
            directory = RunDirectory.unused(config.run_path)
        keep_freed_memory()
        check_compiles(config)
        device = choose_device(config.learner.device)
        cores = cores or available_cores()
        resources = choose_resources(config, cores, gpu=device.type == "cuda")
        set_threads(resources.learner_threads if config.actors.pool == "ray" else 1)
        with ExitStack() as playing:
            pool = make_pool(config, resources, stop)
            playing.callback(pool.close)
            with skip_initialisation() if checkpoint is not None else nullcontext():
                learner = Learner(config, pool.spec)
            run = TrainingRun(config, directory, pool, learner)
            if checkpoint is not None:
                run.load(checkpoint)
                _change_length(config, directory.read_config().run.frames, run.learner)
            if config.run.resume:
                directory.add_resumption(config, run.learner.frame)
            else:
                stack.enter_context(locked(directory.path))
                RunDirectory.unused(directory.path)  # Another command may have begun while Ray was starting.
                directory.write_config(config)
            tell(f"run directory: {directory.path}; watch it with: {tensorboard_command(directory.path)}")
            if built_in := built_in_game(config.env.game):
                tell(f"{config.env.game} is played under no Atari protocol; --game {built_in} plays it under one, and faster")
            _train_and_save(run, stop, is_new=checkpoint is None)
        if run.learner.frame < config.run.frames or stop.is_set():
            return None
        return _conclude(run, stop, cores)


def _checkpoint_to_resume(directory: RunDirectory, keep: int) -> Checkpoint | None:
    if directory.never_began:
        log.warning("%s ended before its first checkpoint: starting from the first frame", directory.path)
        return None
    return directory.checkpoints(keep).newest()


def _change_length(config: TrainConfig, before: int, learner: Learner) -> None:
    """Print how the learning-rate schedule changes if a run is resumed with another number of frames.

    Raises ConfigError if the run is already past the new last frame.
    """
    frames, done = config.run.frames, learner.frame
    if frames == before:
        return
    if frames < done:
        raise ConfigError(f"--frames {frames:,} is less than the {done:,} frames that the run has done")
    if frames > done:
        new, old = (
            warmed_up(annealed(config.learner.learning_rate, done, total), learner.version, config.learner.warm_up_updates)
            for total in (frames, before)
        )
        tell(
            f"learning rate: was to reach 0 at frame {before:,}, now at {frames:,};"
            f" continues from {new:.2g} instead of {old:.2g}"
        )


def make_pool(config: TrainConfig, resources: Resources, stop: threading.Event) -> ActorPool:
    if config.actors.pool == "serial":
        return SerialPool(config)
    game_spec(config.env.game, config.env.protocol)  # A game that cannot be played need not wait for Ray.
    where = f"joining Ray at {config.actors.ray_address}" if config.actors.ray_address else "starting Ray"
    tell(f"{where} with {counted(resources.num_actors, 'actor')}")
    from actors.ray_pool import RayPool  # Ray takes seconds to import, and serial runs do without it.

    return RayPool(config, resources, stop)


def _train_and_save(run: TrainingRun, stop: threading.Event, is_new: bool) -> None:
    """Train, and save a final checkpoint whether training finished, was stopped, or ran out of working actors.

    After a non-finite loss or gradient nothing is saved.
    """
    try:
        writer = MetricsWriter(run.directory.path, from_frame=run.learner.frame)
        if is_new:
            run.save(writer)
    except OSError as error:
        raise RunError(f"cannot write to {run.directory.path}: {explain(error)}") from None
    try:
        try:
            _train_to_end(run, stop, writer)
        except (PoolError, GameError):
            run.save_or_warn(writer)
            raise
        try:
            run.save(writer)
        except OSError as error:
            raise RunError(
                f"frame {run.learner.frame} could not be saved: {explain(error)}; --resume continues from the checkpoint before"
            ) from None
    finally:
        writer.close()


def _train_to_end(run: TrainingRun, stop: threading.Event, writer: MetricsWriter) -> None:
    """Update until the last frame or a stop request; log and save periodically."""
    config, pool, learner = run.config, run.pool, run.learner
    log_frames = config.run.log_frames or max(1, min(50_000, config.run.frames // 100))
    next_log = (learner.frame // log_frames + 1) * log_frames
    picture_frames = config.run.picture_frames or max(100_000, config.run.frames // 20)
    next_pictures = (learner.frame // picture_frames + 1) * picture_frames
    elapsed_before, start = run.elapsed, time.monotonic()
    save_seconds = 60 * config.run.checkpoint_minutes
    next_save = start + save_seconds
    clock = Clock(learner.frame)
    writer.text("config", f"```\n{json.dumps(config.to_dict(), indent=2)}\n```", learner.frame)
    writer.charts(custom_charts(learner.task))
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
            if learner.frame >= next_pictures and learner.window_is_fresh:
                next_pictures = (learner.frame // picture_frames + 1) * picture_frames
                writer.pictures(learner.frame, learner.pictures())
                release_freed_memory()
            score = run.episodes.mean_score
            progress.update(learner.frame, "" if math.isnan(score) else f"return {score:.1f}")
            if time.monotonic() >= next_save:
                saved = run.save_or_warn(writer)
                release_freed_memory()
                next_save = time.monotonic() + (save_seconds if saved else min(save_seconds, RETRY_SECONDS))
        writer.pictures(learner.frame, learner.pictures())
    except StopRequested:
        pass  # Asked while it waited for trajectories; the loop's own condition sees every other request.
    finally:
        progress.close()


class Clock:
    """Time spent in each part of learner and actors between two lines of metrics."""

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
            evaluation = play_games(
                learner.agent, config, config.run.eval_episodes, config.run.seed + FINAL_GAMES_SEED, stop, cores
            )
        except StopRequested:
            return None
    score = run.episodes.mean_score
    result = {
        "game": config.env.game,
        "protocol": applied_protocol(config.env.game, config.env.protocol),
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
    write_hparams(run.directory.path, config, result)  # First: a sweep reads it as soon as there is a result.
    run.directory.write_json(run.directory.result_path, result)
    return result
