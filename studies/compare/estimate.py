"""The estimated cost of a sweep in frames, hours and disk space, from a few seconds of training and the model of a layout."""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from rich.table import Table

from actors.layout import GPU_SPEED_UP, choose_layout, predict
from configs.compare import CompareConfig
from configs.errors import ConfigError, GameError, PoolError
from configs.train import TrainConfig
from envs.atari import atari_games
from envs.registry import game_spec
from studies.compare.sweep import Sweep, Trial, TrialStatus, agent_name
from training.costs import measure_costs

LOG_LINE_BYTES = 8_000
"""Size of one line of metrics.jsonl and of its TensorBoard events, histograms included."""


@dataclass(frozen=True)
class Measured:
    frames_per_second: float
    """Of a trial on its cores."""
    checkpoint_bytes: int


@dataclass(frozen=True)
class SweepEstimate:
    speeds: dict[tuple[str, str], Measured]
    """By the measured game and the agent's name, without settings that do not affect speed."""
    trials_at_once: int
    cores: int
    frames: int
    """Frames that are left to train."""
    hours: float
    disk_bytes: int


def estimate_sweep(sweep: Sweep, statuses: dict[str, TrialStatus], cores: int, gpus: int = 0) -> SweepEstimate:
    """The cost of the unfinished part of a sweep on a number of cores and GPUs."""
    each, part = sweep.config.cores_per_trial, sweep.config.gpus_per_trial
    at_once = trials_at_once(sweep.config, cores, gpus)
    left = {t.name: _frames_left(t, statuses[t.name]) for t in sweep.trials}
    representatives = _representatives(sweep.games)
    measured_games = set(representatives.values())
    kinds = {
        _kind(trial, representatives): trial for trial in reversed(sweep.trials) if trial.config.env.game in measured_games
    }
    speeds = {
        kind: _measured(trial.config.with_run(seed=0), each, part > 0)
        for kind, trial in sorted(kinds.items(), key=lambda item: item[0])
    }

    def measured(trial: Trial) -> Measured:
        return speeds[_kind(trial, representatives)]

    seconds = [left[trial.name] / measured(trial).frames_per_second for trial in sweep.trials]
    checkpoints = sweep.config.keep_checkpoints + 1
    disk = sum(
        checkpoints * measured(trial).checkpoint_bytes + _log_lines(trial.config) * LOG_LINE_BYTES
        for trial in sweep.trials
        if left[trial.name]
    )
    return SweepEstimate(speeds, at_once, cores, sum(left.values()), finishing_time(seconds, at_once) / 3600, int(disk))


def trials_at_once(config: CompareConfig, cores: int, gpus: int) -> int:
    """How many trials fit on a number of cores and GPUs; raises ConfigError if none does."""
    each, part = config.cores_per_trial, config.gpus_per_trial
    if number := min(cores // each, int(gpus / part) if part else cores):
        return number
    raise ConfigError(f"a trial takes {_places(each, part)}; there {'is' if cores == 1 else 'are'} {_places(cores, gpus)}")


def _places(cores: int, gpus: float) -> str:
    return f"{cores} core{'' if cores == 1 else 's'}" + (f" and {gpus:g} GPU{'' if gpus == 1 else 's'}" if gpus else "")


def _kind(trial: Trial, representatives: dict[str, str]) -> tuple[str, str]:
    """Key of trials that are equally fast; float settings are rates and weights, which do not affect speed."""
    costly = {k: v for k, v in trial.settings.items() if k != "frames" and not isinstance(v, float)}
    return representatives[trial.config.env.game], agent_name(trial.config.task, costly)


def _log_lines(config: TrainConfig) -> float:
    return config.run.frames / config.run.log_frames if config.run.log_frames else max(100, config.run.frames / 50_000)


def measure(config: TrainConfig, cores: int = 1, gpu: bool = False) -> Measured:
    """Costs measured in this process, and the speed that the model of a layout gives for them (actors/layout.py)."""
    torch.set_num_threads(1)
    config = replace(config, learner=replace(config.learner, device="cpu"))
    costs = measure_costs(config)
    there = costs.on_gpu() if gpu else costs
    steps = predict(choose_layout(config, there, cores, int(gpu)), there, config, cores, int(gpu)).steps_per_second
    return Measured(steps * game_spec(config.env.game, config.env.protocol).frames_per_step, costs.checkpoint_bytes)


def _measured(config: TrainConfig, cores: int, gpu: bool) -> Measured:
    """`measure`, with any failure as a PoolError: a trial that cannot train is refused before the sweep starts."""
    try:
        return measure(config, cores, gpu)
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
    each, part = sweep.config.cores_per_trial, sweep.config.gpus_per_trial
    caption = f"of a trial on {_places(each, part)}; {estimate.trials_at_once} at once on {_places(estimate.cores, 0)}"
    table = Table(caption=caption + (f"; a GPU is assumed to learn as fast as {GPU_SPEED_UP:g} cores" if part else ""))
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
