"""The estimated cost of a sweep in frames, hours and disk space, from a few seconds of training."""

from __future__ import annotations

import heapq
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from rich.table import Table

from actors.serial_pool import SerialPool
from configs.errors import ConfigError, GameError, PoolError
from configs.tasks import MetaConfig
from configs.train import TrainConfig
from envs.atari import atari_games
from learners.learner import Learner
from studies.compare.sweep import Sweep, Trial, TrialStatus, agent_name

SECONDS = 1.0
"""Minimum duration of the measurement of one kind of trial."""
MEASURED_BATCH = 8
MEASURED_INTERVAL = 3
"""Larger batches and longer windows of the meta-gradient cost about the same per frame but take minutes to measure."""
LOG_LINE_BYTES = 8_000
"""Size of one line of metrics.jsonl and of its TensorBoard events, histograms included."""


@dataclass(frozen=True)
class Measured:
    frames_per_second: float
    """On one core of this machine."""
    checkpoint_bytes: int


@dataclass(frozen=True)
class SweepEstimate:
    speeds: dict[tuple[str, str], Measured]
    """By the measured game and the agent's name, without settings that do not affect speed."""
    trials_at_once: int
    frames: int
    """Frames that are left to train."""
    hours: float
    disk_bytes: int


def estimate_sweep(sweep: Sweep, statuses: dict[str, TrialStatus], cores: int) -> SweepEstimate:
    """The cost of the unfinished part of a sweep on a number of cores."""
    left = {t.name: _frames_left(t, statuses[t.name]) for t in sweep.trials}
    representatives = _representatives(sweep.games)
    measured_games = set(representatives.values())
    kinds = {
        _kind(trial, representatives): trial for trial in reversed(sweep.trials) if trial.config.env.game in measured_games
    }
    speeds = {kind: _measured(trial.config.with_run(seed=0)) for kind, trial in sorted(kinds.items(), key=lambda item: item[0])}
    at_once = max(1, cores // sweep.config.cores_per_trial)

    def measured(trial: Trial) -> Measured:
        return speeds[_kind(trial, representatives)]

    seconds = [left[trial.name] / (measured(trial).frames_per_second * sweep.config.cores_per_trial) for trial in sweep.trials]
    checkpoints = sweep.config.keep_checkpoints + 1
    disk = sum(
        checkpoints * measured(trial).checkpoint_bytes + _log_lines(trial.config) * LOG_LINE_BYTES
        for trial in sweep.trials
        if left[trial.name]
    )
    return SweepEstimate(speeds, at_once, sum(left.values()), finishing_time(seconds, at_once) / 3600, int(disk))


def _kind(trial: Trial, representatives: dict[str, str]) -> tuple[str, str]:
    """Key of trials that are equally fast; float settings are rates and weights, which do not affect speed."""
    costly = {k: v for k, v in trial.settings.items() if k != "frames" and not isinstance(v, float)}
    return representatives[trial.config.env.game], agent_name(trial.config.task, costly)


def _log_lines(config: TrainConfig) -> float:
    return config.run.frames / config.run.log_frames if config.run.log_frames else max(100, config.run.frames / 50_000)


def measure(config: TrainConfig) -> Measured:
    """Measure training in this process on one core, without the first update."""
    torch.set_num_threads(1)
    task = _shorter(config.auxiliary) if isinstance(config.auxiliary, MetaConfig) else config.auxiliary
    learner_config = replace(config.learner, batch_size=min(MEASURED_BATCH, config.learner.batch_size), device="cpu")
    config = replace(config, learner=learner_config, auxiliary=task)
    updates = task.question_period if isinstance(task, MetaConfig) else 1
    pool = SerialPool(config)
    try:
        learner = Learner(config, pool.spec)

        def update() -> None:
            pool.publish(learner.weights(), learner.version)
            learner.step(pool.next_batch())

        update()
        start, first = time.perf_counter(), learner.frame
        while (elapsed := time.perf_counter() - start) < SECONDS or (learner.version - 1) % updates:
            update()
        size = sum(tensor.nbytes for tensor in learner.state_dict().values())
    finally:
        pool.close()
    return Measured((learner.frame - first) / elapsed, size)


def _shorter(config: MetaConfig) -> MetaConfig:
    """The config with a shorter window of the meta-gradient and a period shorter by the same factor."""
    interval = min(MEASURED_INTERVAL, config.meta_interval)
    period = round(interval * config.question_period / config.meta_interval)
    return replace(config, meta_interval=interval, meta_period=max(interval, period))


def _measured(config: TrainConfig) -> Measured:
    """`measure`, with any failure as a PoolError: a trial that cannot train is refused before the sweep starts."""
    try:
        return measure(config)
    except (ConfigError, GameError):
        raise
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise PoolError(f"{config.env.game} cannot be trained on with {config.task}: {cause}") from error


def finishing_time(seconds: Iterable[float], at_once: int) -> float:
    """Time at which the last job of a queue ends if `at_once` jobs run in parallel."""
    workers = [0.0] * at_once
    for duration in seconds:
        heapq.heapreplace(workers, workers[0] + duration)
    return max(workers)


def print_estimate(sweep: Sweep, statuses: dict[str, TrialStatus], estimate: SweepEstimate) -> None:
    console = Console(highlight=False)
    lengths = sorted({trial.config.run.frames for trial in sweep.trials})
    count = f"{len(sweep.trials)} trials of {' or '.join(f'{frames:,}' for frames in lengths)} frames"
    agents = f"tasks and settings {len(sweep.agents)}" if sweep.config.vary else f"tasks {len(sweep.tasks)}"
    console.print(f"sweep: games {len(sweep.games)} x {agents} x seeds {len(sweep.seeds)} = {count}")
    console.print(f"games: {', '.join(sweep.games)}", markup=False)
    console.print(f"seeds: {', '.join(map(str, sweep.seeds))}")
    table = Table(caption=f"measured on one core; {estimate.trials_at_once} trials at once")
    for column in ("measured on", "agent", "frames/s"):
        table.add_column(column, justify="right" if column == "frames/s" else "left")
    for (game, agent), measured in estimate.speeds.items():
        table.add_row(game, agent, f"{measured.frames_per_second:,.0f}")
    console.print(table)
    finished = sum(status is TrialStatus.FINISHED for status in statuses.values())
    begun = sum(status in (TrialStatus.INTERRUPTED, TrialStatus.BEGUN) for status in statuses.values())
    if finished or begun:
        console.print(f"of these {finished} are finished and {begun} begun; still to do:")
    free = shutil.disk_usage(next(path for path in (sweep.out, *sweep.out.absolute().parents) if path.exists())).free
    console.print(
        f"{estimate.frames:,} frames, about {_duration(estimate.hours)}, about {_size(estimate.disk_bytes)} of disk"
        f" ({_size(free)} free)"
    )


def _frames_left(trial: Trial, status: TrialStatus) -> int:
    if status is TrialStatus.FINISHED:
        return 0
    done = trial.checkpoint_frame() if status is TrialStatus.INTERRUPTED else None
    return max(0, trial.config.run.frames - (done or 0))


def _representatives(games: Iterable[str]) -> dict[str, str]:
    """The game that is measured in place of each game: the first Atari game for all Atari games, else the game itself."""
    atari = [game for game in games if game in atari_games()]
    return {game: atari[0] if game in atari else game for game in games}


def _duration(hours: float) -> str:
    minutes = max(1, round(60 * hours))
    return f"{minutes} min" if minutes < 120 else f"{hours:,.1f} hours"


def _size(count: float) -> str:
    return f"{count / 2**30:,.1f} GB" if count >= 2**30 else f"{max(1, count / 2**20):,.0f} MB"
