"""Runs the trials of a sweep: Ray places as many at once as there is room for; each ends as finished, stopped or reported."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.cluster import cause_of, start_ray, stop_ray
from actors.resources import available_cores, choose_resources
from configs.compare import CompareConfig
from configs.errors import ConfigError, PoolError, RunError, StopRequested
from configs.train import TrainConfig
from learners.learner import choose_device
from studies.compare.estimate import estimate_sweep, print_estimate
from studies.compare.progress import Follower, SweepProgress
from studies.compare.sweep import Sweep, Trial, TrialStatus
from studies.compare.tensorboard import SweepBoard
from studies.compare.trial_process import TrialProcess
from training.progress import counted, tell

POLL_SECONDS = 0.2
LOOK_SECONDS = 1.0
"""Between two looks at the trials' metrics."""
STOP_SECONDS = 60.0
"""For the trials under way to save; what is not done by then goes back to its last checkpoint."""


def compare(config: CompareConfig, command: str, stop: threading.Event) -> None:
    """Says what the sweep takes, then runs what is left of it.

    Raises StopRequested when it was stopped, and PoolError, after all others are done, when trials failed.
    """
    sweep = Sweep(config)
    cores = available_cores()
    if not config.ray_address and config.cores_per_trial > cores:
        raise ConfigError(f"--cores-per-trial {config.cores_per_trial} is more than the {cores} cores of this machine")
    if not config.ray_address:
        choose_device(config.learner.device)
    statuses = sweep.statuses()
    if all(status is TrialStatus.FINISHED for status in statuses.values()):
        print(f"nothing is left to do: {len(statuses)} of {counted(len(statuses), 'trial')} finished")
    else:
        print_estimate(sweep, statuses, estimate_sweep(sweep, statuses, cores))
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
    """The trials that wait, run, are finished or have failed."""

    def __init__(self, sweep: Sweep, board: SweepBoard, finished: set[str]):
        self._sweep = sweep
        self._board = board
        self._finished = finished
        self._waiting = deque(trial for trial in sweep.trials if trial.name not in finished)
        self._running: dict[ray.ObjectRef, Running] = {}
        self._failures: dict[str, str] = {}
        self._attempts: dict[str, int] = {}
        self._followers = {trial.name: Follower(trial.path / "metrics.jsonl") for trial in sweep.trials}
        self._last_look = 0.0

    def run(self, stop: threading.Event) -> None:
        self._sweep.write_failures({})
        progress = SweepProgress(self._sweep.trials, self._followers)
        try:
            if self._waiting:
                self._run_waiting(progress, stop)
            self._look()
        finally:
            progress.close()
        if self._failures:
            causes = "; ".join(f"{name}: {cause}" for name, cause in self._failures.items())
            raise PoolError(f"{len(self._failures)} of {len(self._sweep.trials)} trials failed: {causes}")

    def _run_waiting(self, progress: SweepProgress, stop: threading.Event) -> None:
        if stop.is_set():
            raise StopRequested
        start_ray(self._sweep.config.ray_address, available_cores())
        try:
            while self._waiting or self._running:
                self._start_what_fits()
                done, _ = ray.wait(list(self._running), timeout=POLL_SECONDS)
                for reference in done:
                    self._receive(reference)
                if stop.is_set():
                    self._stop_all()
                    raise StopRequested
                if time.monotonic() - self._last_look >= LOOK_SECONDS:
                    self._look()
                    progress.show({r.trial.name for r in self._running.values()}, self._finished, self._failures)
        finally:
            stop_ray()

    def _start_what_fits(self) -> None:
        cores, each = int(ray.cluster_resources().get("CPU", 0)), self._sweep.config.cores_per_trial
        if cores < each:
            raise PoolError(f"a trial takes {each} cores; the cluster has {cores}")
        while self._waiting and len(self._running) < cores // each:
            self._start(self._waiting.popleft())

    def _start(self, trial: Trial) -> None:
        """In a placement group of its own: one bundle for the process of the trial, one for each of its actors."""
        cores = self._sweep.config.cores_per_trial
        config, actors = share_cores(trial.config, cores)
        group = placement_group([{"CPU": cores - actors}] + [{"CPU": 1}] * actors, strategy="PACK")
        place = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
        remote: Any = ray.remote(TrialProcess)
        process = remote.options(num_cpus=cores - actors, max_concurrency=2, scheduling_strategy=place).remote()
        reference = process.run.remote(replace(trial, config=config), cores, os.getcwd())
        self._running[reference] = Running(trial, process, group)
        self._attempts[trial.name] = self._attempts.get(trial.name, 0) + 1

    def _receive(self, reference: ray.ObjectRef) -> None:
        """A trial that failed waits at the end of the queue for its next attempt, if it has one left."""
        running = self._running.pop(reference)
        trial = running.trial
        try:
            ray.get(reference)
            self._finished.add(trial.name)
            self._keep(trial)
        except RayError as error:
            if self._attempts[trial.name] < self._sweep.config.attempts:
                self._waiting.append(trial)
            else:
                self._failures[trial.name] = cause_of(error)
                self._sweep.write_failures(self._failures)
        finally:
            ray.kill(running.process)
            remove_placement_group(running.group)

    def _keep(self, trial: Trial) -> None:
        """A full disk under the archive does not end the sweep: the trial's own directory is whole."""
        try:
            self._sweep.keep(trial)
        except RunError as error:
            tell(f"{error}; continuing the sweep tries again")

    def _stop_all(self) -> None:
        for running in self._running.values():
            running.process.stop.remote()
        ray.wait(list(self._running), num_returns=len(self._running), timeout=STOP_SECONDS)

    def _look(self) -> None:
        """Brings the followers and TensorBoard up to date."""
        self._last_look = time.monotonic()
        for trial in self._sweep.trials:
            self._board.add(trial, self._followers[trial.name].new_lines())
            if trial.name in self._finished:
                self._board.finish(trial)


def share_cores(config: TrainConfig, cores: int) -> tuple[TrainConfig, int]:
    """The config of a trial on so many cores, and how many actors it has besides its own process."""
    if config.actors.pool == "serial":
        return config, 0
    resources = choose_resources(config, cores, gpu=False)
    actors = min(resources.num_actors, cores - 1)
    # Said plainly, for a machine with a GPU would choose otherwise and wait for cores it does not get.
    fixed = replace(
        config,
        actors=replace(config.actors, num_actors=actors),
        learner=replace(config.learner, learner_threads=resources.learner_threads),
    )
    return fixed, actors
