"""The training loop of one rank, from a checkpoint or the first frame to the last frame or a request to stop.

Once a run has begun, only its actors, its learners, its numbers or a request can stop it: a disk that refuses is tried again.
All ranks of a run do the same updates. Rank 0 keeps the statistics and writes the run directory.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from actors.pool import ActorPool
from actors.resources import Resources
from actors.serial_pool import SerialPool
from agents.batch import Batch
from agents.initialisation import skip_initialisation
from agents.ranks import Ranks
from configs.errors import GameError, PluginError, PoolError, RunError, StopRequested
from configs.train import TrainConfig
from learners.allocator import release_freed_memory
from learners.learner import Learner, choose_device
from training.clock import health_metrics
from training.metrics import MetricsWriter
from training.outcome import describe_run, keep_pictures
from training.progress import Progress, counted, sparkline, tell
from training.run_state import TrainingRun
from training.staging import StagedPool
from training.storage.checkpoint import Checkpoint
from training.storage.files import explain
from training.storage.run_directory import RunDirectory
from training.tensorboard import custom_charts

RETRY_SECONDS = 30.0
"""Between two attempts to save, while they fail."""


@dataclass(frozen=True)
class Round:
    """What the ranks of a run begin from."""

    config: TrainConfig
    path: Path
    """Of the run directory, which only rank 0 needs to reach."""
    resources: Resources
    checkpoint: Checkpoint | None
    """None for a new run."""


def play_round(
    round_: Round, ranks: Ranks, stop: threading.Event, begin: Callable[[TrainingRun], None] | None = None
) -> TrainingRun:
    """Train until the last frame or a request to stop, and save; `begin` is called before the first update."""
    config, checkpoint = round_.config, round_.checkpoint
    with ExitStack() as playing:
        pool = make_pool(config, round_.resources, stop, ranks.rank)
        playing.callback(pool.close)
        with skip_initialisation() if checkpoint is not None else nullcontext():
            learner = Learner(config, pool.spec, ranks)
        run = TrainingRun(config, RunDirectory(round_.path), pool, learner, ranks)
        if checkpoint is not None:
            run.load(checkpoint)
        if begin is not None:
            begin(run)
        _train_and_save(run, stop, is_new=checkpoint is None)
        return run


def make_pool(config: TrainConfig, resources: Resources, stop: threading.Event, rank: int = 0) -> ActorPool:
    if config.actors.pool == "serial":
        return SerialPool(config, rank)
    if rank == 0 and config.learner.learners == 1 and not config.actors.ray_address:
        tell(f"starting Ray with {counted(resources.num_actors, 'actor')}")
    from actors.ray_pool import RayPool  # Ray takes seconds to import, and serial runs do without it.

    device = choose_device(config.learner.device)
    if device.type == "cpu":
        return RayPool(config, resources, stop, rank)
    return StagedPool(RayPool(config, resources, stop, rank, pin_memory=True), device)


def _train_and_save(run: TrainingRun, stop: threading.Event, is_new: bool) -> None:
    """Train, and save a final checkpoint whether training finished, was stopped, or ran out of working actors.

    After a non-finite loss or gradient nothing is saved. After an error in a task's code the last update stays as it is.
    """
    writer = None
    try:
        if run.ranks.rank == 0:
            writer = MetricsWriter(run.directory.path, from_frame=run.learner.frame)
        if is_new:
            run.save(writer)
    except OSError as error:
        raise RunError(f"cannot write to {run.directory.path}: {explain(error)}") from None
    try:
        try:
            failure = _train_to_end(run, stop, writer)
        except PluginError as error:  # Of several ranks one may be alone with it, and only all can save.
            saved = run.ranks.size == 1 and run.save_or_warn(writer)
            where = f"frame {run.learner.frame} is saved" if saved else "the last checkpoint stands"
            raise PluginError(f"{error}; {where}, and --resume continues from it", error.trace) from error
        if failure is not None:
            run.save_or_warn(writer)
            raise failure
        try:
            run.save(writer)
        except OSError as error:
            raise RunError(
                f"frame {run.learner.frame} could not be saved: {explain(error)}; --resume continues from the checkpoint before"
            ) from None
    finally:
        if writer is not None:
            writer.close()


def _train_to_end(run: TrainingRun, stop: threading.Event, writer: MetricsWriter | None) -> PoolError | GameError | None:
    """Update until the last frame, a stop request, or a failure of a rank's pool, which is returned; log and save."""
    config, pool, learner = run.config, run.pool, run.learner
    log_frames = config.run.log_frames or max(1, min(50_000, config.run.frames // 100))
    next_log = (learner.frame // log_frames + 1) * log_frames
    picture_frames = config.run.picture_frames or max(100_000, config.run.frames // 20)
    next_pictures = (learner.frame // picture_frames + 1) * picture_frames
    elapsed_before, start = run.elapsed, time.monotonic()
    save_seconds = 60 * config.run.checkpoint_minutes
    next_save = start + save_seconds
    run.clock.restart(learner.frame)
    progress = None
    curve: list[float] = []
    if writer is not None:
        writer.text("commands", describe_run(config), learner.frame)
        writer.text("config", f"```\n{json.dumps(config.to_dict(), indent=2)}\n```", learner.frame)
        writer.charts(custom_charts(learner.task))
        progress = Progress(config.env.game, config.run.frames, learner.frame, starts_slowly=True)
    pool.publish(learner.weights(), learner.version)
    try:
        while learner.frame < config.run.frames and not (stop.is_set() and run.ranks.size == 1):
            batch, failure = _next_batch(pool)
            request = _exchange(run.ranks, stop.is_set(), batch is None, writer is not None and time.monotonic() >= next_save)
            if request.abandon:
                return _failure_of_any(run.ranks, failure)
            assert batch is not None
            with run.clock.measure("learn"):
                run.means.add(learner.step(batch))
            with run.clock.measure("publish"):
                pool.publish(learner.weights(), learner.version)
            run.pending.merge(pool.report())
            run.elapsed = elapsed_before + time.monotonic() - start
            if learner.frame >= next_log:
                next_log = (learner.frame // log_frames + 1) * log_frames
                reports = run.gather_reports()
                if writer is not None:
                    scalars = run.means.take() | run.episodes.metrics(pool.spec.frames_per_step)
                    scalars |= run.clock.take(learner.frame) | {"charts/wall_seconds": run.elapsed}
                    writer.write(learner.frame, scalars | health_metrics(reports))
                    writer.histograms(learner.frame, learner.histograms)
                    curve += [score] if (score := scalars.get("charts/episode_return")) is not None else []
            if learner.frame >= next_pictures and learner.window_is_fresh:
                next_pictures = (learner.frame // picture_frames + 1) * picture_frames
                _draw(learner, writer)
                release_freed_memory()
            if progress is not None:
                score = run.episodes.mean_score
                progress.update(learner.frame, "" if math.isnan(score) else f"return {score:.1f} {sparkline(curve)}".rstrip())
            if request.save:
                saved = run.save_or_warn(writer)
                release_freed_memory()
                next_save = time.monotonic() + (save_seconds if saved else min(save_seconds, RETRY_SECONDS))
            if request.stop and run.ranks.size > 1:
                break
        images = _draw(learner, writer)
        if writer is not None and learner.frame >= config.run.frames:
            keep_pictures(run.directory.path, images)
        return None
    finally:
        if progress is not None:
            progress.close()


def _draw(learner: Learner, writer: MetricsWriter | None) -> dict[str, np.ndarray]:
    """Figures of the task; every rank makes them, since a question network may depend on the whole batch."""
    images = learner.pictures()
    if writer is not None:
        writer.pictures(learner.frame, images)
    return images


def _next_batch(pool: ActorPool) -> tuple[Batch | None, PoolError | GameError | None]:
    """The next batch; without one the error that prevents it, or nothing if a stop was requested meanwhile."""
    try:
        return pool.next_batch(), None
    except StopRequested:
        return None, None
    except (PoolError, GameError) as error:
        return None, error


@dataclass(frozen=True)
class _Requests:
    """What any rank asks of all."""

    stop: bool
    """Stop after this update."""
    abandon: bool
    """Stop before it, since a rank has no batch."""
    save: bool
    """Save after this update."""


def _exchange(ranks: Ranks, stop: bool, abandon: bool, save: bool) -> _Requests:
    if ranks.size == 1:
        return _Requests(stop, abandon, save)
    asked = ranks.sum_(torch.tensor([stop, abandon, save], dtype=torch.float32))
    return _Requests(*(count > 0 for count in asked.tolist()))


def _failure_of_any(ranks: Ranks, own: PoolError | GameError | None) -> PoolError | GameError | None:
    """The failure of this rank's pool or, on rank 0, of the first rank that has one."""
    failures = ranks.gather(own and str(own))
    if own is None:
        for rank, text in enumerate(failures):
            if text is not None:
                return PoolError(f"learner {rank}: {text}")
    return own
