"""Rounds of several learners: if one of them fails, all start again from the newest checkpoint."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch

from actors.cluster import node_address, start_ray, stop_ray
from actors.resources import available_cores, cores_of_ranks
from agents.ranks import Ranks
from agents.threads import set_threads
from configs.errors import ConfigError, RankError, StopRequested
from configs.train import TrainConfig
from learners.allocator import keep_freed_memory
from learners.learner import choose_device
from learners.process_group import LOOPBACK, Rendezvous, listen, process_group
from learners.rank_processes import RankProcesses, pin
from training.progress import counted, tell
from training.round import Round, play_round
from training.run_state import TrainingRun
from training.storage.run_directory import RunDirectory

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Rounds that may fail one after the other without a new checkpoint."""
COLLECTIVE_SECONDS = 900.0
"""After which a rank that waits for another gives up; before that the watch ends ranks that are dead or hung."""


def play_rounds(round_: Round, stop: threading.Event, begin: Callable[[TrainingRun], None]) -> TrainingRun | None:
    """Train as rank 0, with the other ranks in processes of their own, until the end or a request to stop.

    Returns None if the request came while learners were starting again, and raises StopRequested if it came before they had
    begun. Raises RankError if they cannot start, or fail repeatedly without progress.
    """
    config = round_.config
    check_learners(config)
    failures, begun = 0, False

    def begin_once(run: TrainingRun) -> None:
        nonlocal begun
        if not begun:
            begin(run)
        begun = True

    resources, learners = round_.resources, config.learner.learners
    with ExitStack() as stack:
        if not config.actors.ray_address:
            tell(f"starting Ray with {counted(learners, 'learner')}")
            start_ray("", learners - 1 + learners * resources.num_actors)
            stack.callback(stop_ray)
        while True:
            frame = _frame(round_)
            try:
                with learner_group(round_, stop) as ranks:
                    return play_round(round_, ranks, stop, begin_once)
            except StopRequested:
                if not begun:
                    raise
                return None
            except RankError as error:
                if not begun or stop.is_set():
                    raise
                directory = RunDirectory(round_.path)
                if not directory.never_began:
                    round_ = replace(round_, checkpoint=directory.checkpoints(config.run.keep_checkpoints).newest())
                failures = failures + 1 if _frame(round_) == frame else 1
                if failures > MAX_FAILURES:
                    raise RankError(f"{error}; the learners failed {failures} times without a new checkpoint") from None
                log.warning("%s; all learners start again from frame %d", error, _frame(round_))


def _frame(round_: Round) -> int:
    return 0 if round_.checkpoint is None else int(round_.checkpoint.tensors["learner.counters"][0])


def check_learners(config: TrainConfig) -> None:
    """Raise ConfigError for more learners than GPUs; warn of more learners than cores."""
    learners = config.learner.learners
    if choose_device(config.learner.device).type == "cuda":
        gpus = torch.cuda.device_count()
        if learners > gpus and not config.actors.ray_address:
            raise ConfigError(f"--learners {learners} takes a GPU each; there are {gpus}: choose fewer or --device cpu")
    elif learners > (cores := available_cores()) and not config.actors.ray_address:
        log.warning("--learners %d is more than the %d cores here: they will wait for each other", learners, cores)


@contextmanager
def learner_group(round_: Round, stop: threading.Event) -> Iterator[Ranks]:
    """Start ranks 1 to N - 1 and meet them as rank 0; raises RankError, with its cause, once one of them is gone."""
    config = round_.config
    learners, device = config.learner.learners, choose_device(config.learner.device)
    host = node_address() if config.actors.ray_address else LOOPBACK
    with ExitStack() as stack:
        cores = cores_of_ranks(config, round_.resources)
        stack.enter_context(_pinned(cores[0]))
        listener = stack.enter_context(listen(host))
        rendezvous = Rendezvous(host, listener.getsockname()[1], learners, COLLECTIVE_SECONDS)
        place: dict[str, Any] = {"num_cpus": round_.resources.learner_threads if config.actors.ray_address else 1}
        if config.actors.ray_address and device.type == "cuda":
            place["num_gpus"] = 1
        if config.learner.learner_resource:
            place["resources"] = {config.learner.learner_resource: 1}
        processes = RankProcesses(cores[1:], config.learner.learner_timeout, stop, place)
        stack.enter_context(processes)
        processes.start(play_as_rank, round_, rendezvous)
        try:
            yield stack.enter_context(process_group(rendezvous, 0, device, listener, processes.check))
        except RankError as error:
            raise processes.cause(error) from None


def play_as_rank(rank: int, stop: threading.Event, round_: Round, rendezvous: Rendezvous) -> None:
    """The part of a rank other than 0 in a round."""
    keep_freed_memory()
    device = choose_device(round_.config.learner.device)
    if device.type == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    set_threads(round_.resources.learner_threads)
    with process_group(rendezvous, rank, device) as ranks:
        play_round(round_, ranks, stop)


@contextmanager
def _pinned(cores: list[int]) -> Iterator[None]:
    """Context in which this process is restricted to `cores`."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    pin(cores)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)
