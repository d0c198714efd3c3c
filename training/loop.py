"""A training run from its first frame to its result."""

from __future__ import annotations

import logging
import math
import threading
from contextlib import ExitStack
from typing import Any

from actors import ray_log
from actors.layout import Layout
from actors.resources import available_cores
from agents.ranks import ONE_RANK
from agents.tasks import check_compiles
from agents.threads import set_threads
from configs.errors import ConfigError, StopRequested
from configs.plugins import is_foreign
from configs.shell import tensorboard_command
from configs.train import TrainConfig
from envs.registry import applied_protocol, built_in_game, game_spec
from learners.allocator import keep_freed_memory
from learners.learner import Learner, check_precision, choose_device
from learners.optimiser import annealed, warmed_up
from training.costs import layout_for
from training.evaluation import film, play_games
from training.progress import tell
from training.round import Round, play_round
from training.run_state import TrainingRun
from training.storage.checkpoint import Checkpoint
from training.storage.run_directory import RunDirectory, provenance
from training.storage.run_lock import locked
from training.tensorboard import write_hparams

log = logging.getLogger(__name__)

FINAL_GAMES_SEED = 1_000_000
"""Added to the seed for the final evaluation, whose games then differ from those of training."""


def train(config: TrainConfig, stop: threading.Event, cores: int = 0) -> dict[str, Any] | None:
    """Train to the last frame, run the final evaluation and write result.json; returns None if `stop` was set before.

    `cores` limits the cores used; 0 uses all. Raises StopRequested if it was set before anything was written.
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
        check_precision(config)
        choose_device(config.learner.device)
        spec = game_spec(config.env.game, config.env.protocol)  # A game that cannot be played need not wait for Ray,
        if is_foreign(config.task) or is_foreign(config.agent.torso):
            Learner(config, spec)  # nor a task or torso that cannot be trained.
        cores = cores or available_cores()
        set_threads(1)
        layout = _layout_on_cluster(config, stop, stack) if config.actors.ray_address else layout_for(config, cores)
        config = layout.applied_to(config)
        set_threads(layout.resources.learner_threads)

        def begin(run: TrainingRun) -> None:
            """Before the first update: claim the directory."""
            if checkpoint is not None:
                _change_length(config, directory.read_config().run.frames, run.learner)
            if config.run.resume:
                directory.add_resumption(config, run.learner.frame)
                if run.learner.frame < config.run.frames:  # The result of a run that was shorter does not hold for this one.
                    directory.result_path.unlink(missing_ok=True)
            else:
                stack.enter_context(locked(directory.path))
                RunDirectory.unused(directory.path)  # Another command may have begun while Ray was starting.
                directory.write_config(config)
            ray_log.keep(directory.path)
            tell(f"run directory: {directory.path}; watch it with: {tensorboard_command(directory.path)}")
            tell(f"layout: {layout.describe()}")
            if built_in := built_in_game(config.env.game):
                tell(f"{config.env.game} is played under no Atari protocol; --game {built_in} plays it under one, and faster")

        first = Round(config, directory.path, layout.resources, checkpoint)
        run: TrainingRun | None
        if config.learner.learners == 1:
            run = play_round(first, ONE_RANK, stop, begin)
        else:
            from training.group import play_rounds  # Ray takes seconds to import.

            run = play_rounds(first, stop, begin)
        if run is None or run.learner.frame < config.run.frames or stop.is_set():
            return None
        return _conclude(run, stop, cores)


def _layout_on_cluster(config: TrainConfig, stop: threading.Event, stack: ExitStack) -> Layout:
    """Join the cluster until `stack` ends, and choose from what is free there."""
    from actors.cluster import start_ray, stop_ray  # Ray takes seconds to import.
    from actors.nodes import wait_for_cluster

    tell(f"joining Ray at {config.actors.ray_address}")
    start_ray(config.actors.ray_address, 0)
    stack.callback(stop_ray)
    found = wait_for_cluster(config, stop, tell)
    tell(f"the cluster has {found.describe()}")
    return layout_for(config, found.cpus, gpus=found.gpus, cores_here=found.cores_here)


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
    video = film(config, learner.agent.cpu(), learner.frame, run.directory, stop) if config.run.film else None
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
        "video": None if video is None else str(video),
        **provenance(),
    }
    write_hparams(run.directory.path, config, result)  # First: a sweep reads it as soon as there is a result.
    run.directory.write_json(run.directory.result_path, result)
    return result
