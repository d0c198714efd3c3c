"""Runs the trials of a sweep on Ray, as many at once as there are cores; retries failed trials and reports what still fails."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors import ray_log
from actors.cluster import error_cause, start_ray, stop_ray
from actors.nodes import software
from actors.resources import available_cores
from agents.tasks import check_compiles
from configs.compare import CompareConfig
from configs.errors import NodeError, PoolError, RunError, StopRequested
from configs.train import TrainConfig
from learners.learner import check_precision, choose_device
from studies.compare.estimate import estimate_sweep, print_estimate, trials_at_once
from studies.compare.progress import Follower, SweepProgress
from studies.compare.sweep import Sweep, Trial, TrialStatus
from studies.compare.tensorboard import SweepBoard
from studies.compare.trial_process import TrialProcess
from training.costs import layout_for
from training.progress import counted, tell

POLL_SECONDS = 0.2
METRICS_SECONDS = 1.0
"""Interval at which the trials' metrics are read."""
STOP_SECONDS = 60.0
"""Time for running trials to save a checkpoint; a trial that takes longer continues from its last one."""


def compare(config: CompareConfig, command: str, stop: threading.Event) -> None:
    """Print the estimated cost of the sweep, then run its unfinished trials.

    Raises StopRequested if it was stopped, and PoolError at the end if trials failed.
    """
    sweep = Sweep(config)
    for trial in sweep.trials:
        check_compiles(trial.config)
        check_precision(trial.config)
    cores, gpus = available_cores(), torch.cuda.device_count()
    if config.cluster_cpus:
        cores, gpus = config.cluster_cpus, config.cluster_gpus
    elif config.ray_address:
        cores, gpus = max(cores, config.cores_per_trial), max(gpus, math.ceil(config.gpus_per_trial))
    else:
        choose_device(config.learner.device)
    statuses = sweep.statuses()
    if all(status is TrialStatus.FINISHED for status in statuses.values()):
        print(f"nothing is left to do: {len(statuses)} of {counted(len(statuses), 'trial')} finished")
    else:
        print_estimate(sweep, statuses, estimate_sweep(sweep, statuses, cores, gpus))
    if config.dry_run:
        return
    with sweep.claimed(command):
        statuses = sweep.statuses()
        board = SweepBoard(sweep)
        try:
            SweepRun(sweep, board, {name for name, status in statuses.items() if status is TrialStatus.FINISHED}).run(stop)
        finally:
            board.close()


@dataclass
class Running:
    trial: Trial
    process: Any
    group: PlacementGroup


class SweepRun:
    """One execution of a sweep: its waiting, running, finished and failed trials."""

    def __init__(self, sweep: Sweep, board: SweepBoard, finished: set[str]):
        self._sweep = sweep
        self._board = board
        self._finished = finished
        self._waiting = deque(trial for trial in sweep.trials if trial.name not in finished)
        self._running: dict[ray.ObjectRef, Running] = {}
        self._failures: dict[str, str] = {}
        self._attempts: dict[str, int] = {}
        self._followers = {trial.name: Follower(trial.path / "metrics.jsonl") for trial in sweep.trials}
        self._last_read = 0.0

    def run(self, stop: threading.Event) -> None:
        self._sweep.write_failures({})
        progress = SweepProgress(self._sweep.trials, self._followers)
        try:
            if self._waiting:
                self._run_waiting(progress, stop)
            self._read_metrics()
        finally:
            progress.close()
        if self._failures:
            causes = "; ".join(f"{name}: {cause}" for name, cause in self._failures.items())
            raise PoolError(f"{len(self._failures)} of {len(self._sweep.trials)} trials failed: {causes}")

    def _run_waiting(self, progress: SweepProgress, stop: threading.Event) -> None:
        if stop.is_set():
            raise StopRequested
        start_ray(self._sweep.config.ray_address, available_cores())
        ray_log.keep(Path(self._sweep.config.out))
        try:
            while self._waiting or self._running:
                self._start_waiting()
                done, _ = ray.wait(list(self._running), timeout=POLL_SECONDS)
                for reference in done:
                    self._receive(reference)
                if stop.is_set():
                    self._stop_all()
                    raise StopRequested
                if time.monotonic() - self._last_read >= METRICS_SECONDS:
                    self._read_metrics()
                    progress.show({r.trial.name for r in self._running.values()}, self._finished, self._failures)
        except (OSError, RunError):
            self._stop_all()  # A disk that refuses ends the sweep, but costs the running trials nothing.
            raise
        finally:
            stop_ray()

    def _start_waiting(self) -> None:
        there = ray.cluster_resources()
        at_once = trials_at_once(self._sweep.config, int(there.get("CPU", 0)), int(there.get("GPU", 0)))
        while self._waiting and len(self._running) < at_once:
            self._start(self._waiting.popleft())

    def _start(self, trial: Trial) -> None:
        """Start a trial in its own placement group: one bundle for its process and one for each of its actors."""
        cores, gpus = self._sweep.config.cores_per_trial, self._sweep.config.gpus_per_trial
        config, actors = share_cores(trial.config, cores, gpu=gpus > 0)
        own = {"CPU": cores - actors} | ({"GPU": gpus} if gpus else {})
        group = placement_group([own] + [{"CPU": 1}] * actors, strategy="PACK")
        strategy = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
        remote: Any = ray.remote(TrialProcess)
        process = remote.options(
            num_cpus=cores - actors, num_gpus=gpus, max_concurrency=2, scheduling_strategy=strategy
        ).remote()
        reference = process.run.remote(replace(trial, config=config), cores, os.getcwd(), software())
        self._running[reference] = Running(trial, process, group)
        self._attempts[trial.name] = self._attempts.get(trial.name, 0) + 1

    def _receive(self, reference: ray.ObjectRef) -> None:
        """Handle a trial that ended; a failed one goes back to the end of the queue if it has attempts left."""
        running = self._running.pop(reference)
        trial = running.trial
        try:
            ray.get(reference)
            self._finished.add(trial.name)
            self._archive(trial)
        except RayError as error:
            if isinstance(error, RayTaskError) and isinstance(error.cause, NodeError):
                self._stop_all()
                raise error.cause from None
            if self._attempts[trial.name] < self._sweep.config.attempts:
                self._waiting.append(trial)
            else:
                self._failures[trial.name] = error_cause(error)
                try:
                    self._sweep.write_failures(self._failures)
                except RunError as refused:
                    tell(str(refused))
        finally:
            ray.kill(running.process)
            remove_placement_group(running.group)

    def _archive(self, trial: Trial) -> None:
        """Archive a finished trial; a full disk does not end the sweep, since the run directory is complete."""
        try:
            self._sweep.keep(trial)
        except RunError as error:
            tell(f"{error}; the trial is archived when the sweep is continued")

    def _stop_all(self) -> None:
        for running in self._running.values():
            running.process.stop.remote()
        ray.wait(list(self._running), num_returns=len(self._running), timeout=STOP_SECONDS)

    def _read_metrics(self) -> None:
        """Read new metrics of all trials and write them to TensorBoard."""
        self._last_read = time.monotonic()
        for trial in self._sweep.trials:
            self._board.add(trial, self._followers[trial.name].new_lines())
            if trial.name in self._finished:
                self._board.finish(trial)


def share_cores(config: TrainConfig, cores: int, gpu: bool = False) -> tuple[TrainConfig, int]:
    """The config of a trial on a number of cores, and the number of its actors besides its own process."""
    if config.actors.pool == "serial":
        return config, 0
    resources = layout_for(config, cores, gpus=int(gpu)).resources
    actors = min(resources.num_actors, cores - 1)
    # Explicit, because a machine with a GPU would choose more actors than the placement group has cores.
    fixed = replace(
        config,
        actors=replace(config.actors, num_actors=actors),
        learner=replace(config.learner, learner_threads=resources.learner_threads),
    )
    return fixed, actors
