"""Runs the trials of a grid: Ray places as many at once as there is room for; each ends as finished, stopped or reported."""

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

from actors.cluster import error_cause, start_ray, stop_ray
from actors.resources import available_cores, choose_resources
from agents.tasks import check_compiles
from configs.compare import CompareConfig
from configs.errors import ConfigError, PoolError, RunError, StopRequested
from configs.train import TrainConfig
from learners.learner import choose_device
from studies.compare.estimate import estimate_grid, print_estimate
from studies.compare.progress import Follower, GridProgress
from studies.compare.sweep import Grid, Trial, TrialState
from studies.compare.tensorboard import GridBoard
from studies.compare.trial_process import TrialProcess
from training.progress import counted, tell

POLL_SECONDS = 0.2
LOOK_SECONDS = 1.0
"""Between two looks at the trials' metrics."""
STOP_SECONDS = 60.0
"""For the trials under way to save; what is not done by then goes back to its last checkpoint."""


def compare(config: CompareConfig, command: str, stop: threading.Event) -> None:
    """Says what the grid takes, then runs what is left of it.

    Raises StopRequested when it was stopped, and PoolError, after all others are done, when trials failed.
    """
    grid = Grid(config)
    for trial in grid.trials:
        check_compiles(trial.config)
    cores = available_cores()
    if not config.ray_address and config.cores_per_trial > cores:
        raise ConfigError(f"--cores-per-trial {config.cores_per_trial} is more than the {cores} cores of this machine")
    if not config.ray_address:
        choose_device(config.learner.device)
    states = grid.states()
    if all(state is TrialState.FINISHED for state in states.values()):
        print(f"nothing is left to do: {len(states)} of {counted(len(states), 'trial')} finished")
    else:
        print_estimate(grid, states, estimate_grid(grid, states, cores))
    if config.dry_run:
        return
    with grid.claimed(command):
        states = grid.states()
        board = GridBoard(grid)
        try:
            GridRun(grid, board, {name for name, state in states.items() if state is TrialState.FINISHED}).run(stop)
        finally:
            board.close()


@dataclass
class Running:
    trial: Trial
    process: Any
    group: PlacementGroup


class GridRun:
    """The trials that wait, run, are finished or have failed."""

    def __init__(self, grid: Grid, board: GridBoard, finished: set[str]):
        self._grid = grid
        self._board = board
        self._finished = finished
        self._waiting = deque(trial for trial in grid.trials if trial.name not in finished)
        self._running: dict[ray.ObjectRef, Running] = {}
        self._failures: dict[str, str] = {}
        self._attempts: dict[str, int] = {}
        self._followers = {trial.name: Follower(trial.path / "metrics.jsonl") for trial in grid.trials}
        self._last_look = 0.0

    def run(self, stop: threading.Event) -> None:
        self._grid.write_failures({})
        progress = GridProgress(self._grid.trials, self._followers)
        try:
            if self._waiting:
                self._run_waiting(progress, stop)
            self._look()
        finally:
            progress.close()
        if self._failures:
            causes = "; ".join(f"{name}: {cause}" for name, cause in self._failures.items())
            raise PoolError(f"{len(self._failures)} of {len(self._grid.trials)} trials failed: {causes}")

    def _run_waiting(self, progress: GridProgress, stop: threading.Event) -> None:
        if stop.is_set():
            raise StopRequested
        start_ray(self._grid.config.ray_address, available_cores())
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
        cores, each = int(ray.cluster_resources().get("CPU", 0)), self._grid.config.cores_per_trial
        if cores < each:
            raise PoolError(f"a trial takes {each} cores; the cluster has {cores}")
        while self._waiting and len(self._running) < cores // each:
            self._start(self._waiting.popleft())

    def _start(self, trial: Trial) -> None:
        """In a placement group of its own: one bundle for the process of the trial, one for each of its actors."""
        cores = self._grid.config.cores_per_trial
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
            if self._attempts[trial.name] < self._grid.config.attempts:
                self._waiting.append(trial)
            else:
                self._failures[trial.name] = error_cause(error)
                self._grid.write_failures(self._failures)
        finally:
            ray.kill(running.process)
            remove_placement_group(running.group)

    def _keep(self, trial: Trial) -> None:
        """A full disk under the archive does not end the grid: the trial's own directory is whole."""
        try:
            self._grid.keep(trial)
        except RunError as error:
            tell(f"{error}; continuing the grid tries again")

    def _stop_all(self) -> None:
        for running in self._running.values():
            running.process.stop.remote()
        ray.wait(list(self._running), num_returns=len(self._running), timeout=STOP_SECONDS)

    def _look(self) -> None:
        """Brings the followers and TensorBoard up to date."""
        self._last_look = time.monotonic()
        for trial in self._grid.trials:
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
