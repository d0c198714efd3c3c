"""The processes of ranks 1 to N - 1, placed by Ray, and a thread that watches them.

A rank that dies breaks the connections of the others at once. A rank that hangs is killed, which breaks them too: so a
collective operation ends soon after any rank does, and the cause is known here.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from configs.errors import PluginError, RankError, StopRequested

START_SECONDS = 300.0
"""For all ranks to start, which may have to wait for cores of a cluster."""
WATCH_SECONDS = 0.5


class RankProcess:
    """Runs one rank; `ping` and `stop` are called while it runs."""

    def __init__(self, cores: Sequence[int]):
        torch.set_num_threads(max(1, len(cores)))
        pin(cores)
        self._stop = threading.Event()

    def run(self, work: Callable[..., None], rank: int, *arguments: Any) -> None:
        work(rank, self._stop, *arguments)

    def stop(self) -> None:
        self._stop.set()

    def ping(self) -> tuple[str, int]:
        """Host and process id."""
        return socket.gethostname(), os.getpid()


class RankProcesses:
    """Context in which ranks 1 to N - 1 run; the processes end with it."""

    def __init__(
        self, cores: Sequence[Sequence[int]], timeout: float, stop: threading.Event, place: dict[str, Any] | None = None
    ):
        """`cores` are those that each process is pinned to, if any, and `place` is what each takes of Ray's resources.

        A process that is silent for `timeout` seconds is killed.
        """
        self._timeout = timeout
        self._stop = stop
        self._cause = ""
        self._plugin_error: PluginError | None = None
        """Of a rank's task or torso: no new round would help."""
        remote: Any = ray.remote(max_restarts=0, **(place or {"num_cpus": 1}))(RankProcess)
        start = remote.options(max_concurrency=3).remote
        self._processes = {rank: start(of_rank) for rank, of_rank in enumerate(cores, start=1)}
        self._places: dict[int, tuple[str, int]] = {}
        self._runs: dict[ray.ObjectRef, int] = {}
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._watch_ranks, name="watch-ranks", daemon=True)

    def __enter__(self) -> RankProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._watch.ident is not None:
            self._watch.join()
        for process in self._processes.values():
            ray.kill(process)

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        """Call `work(rank, stop, *arguments)` in every process once all of them answer.

        Raises RankError if one does not, and StopRequested if a stop was requested before.
        """
        pings = {process.ping.remote(): rank for rank, process in self._processes.items()}
        deadline = time.monotonic() + START_SECONDS
        while waiting := [ping for ping, rank in pings.items() if rank not in self._places]:
            ready, _ = ray.wait(waiting, timeout=WATCH_SECONDS)
            for ping in ready:
                try:
                    self._places[pings[ping]] = ray.get(ping)
                except RayError as error:
                    raise RankError(f"learner {pings[ping]} could not start: {_cause(error)}") from None
            if self._stop.is_set():
                raise StopRequested
            if time.monotonic() > deadline:
                raise RankError(f"learner {pings[waiting[0]]} did not start within {START_SECONDS:g} s")
        shared = [ray.put(argument) for argument in arguments]
        self._runs = {process.run.remote(work, rank, *shared): rank for rank, process in self._processes.items()}
        self._watch.start()

    def check(self) -> None:
        """Raise RankError if a process has died or was killed because it hung, StopRequested if a stop was requested."""
        if self._cause:
            raise RankError(self._cause)
        if self._stop.is_set():
            raise StopRequested

    def cause(self, error: RankError) -> RankError | PluginError:
        """The reason for which a collective operation failed: that of the process that ended, if one did."""
        deadline = time.monotonic() + 5 * WATCH_SECONDS
        while not self._cause and time.monotonic() < deadline:
            time.sleep(0.1)
        if self._plugin_error is not None:
            return self._plugin_error
        return RankError(self._cause) if self._cause else error

    def _watch_ranks(self) -> None:
        answered = dict.fromkeys(self._processes, time.monotonic())
        pings: dict[int, ray.ObjectRef] = {}
        running = dict(self._runs)
        while not self._closing.wait(WATCH_SECONDS):
            if self._stop.is_set():
                for process in self._processes.values():
                    process.stop.remote()
            for run in ray.wait(list(running), timeout=0)[0] if running else []:
                self._note_end(running.pop(run), run)
            for rank, process in self._processes.items():
                if rank in pings and ray.wait([pings[rank]], timeout=0)[0]:
                    answered[rank] = time.monotonic()
                    del pings[rank]
                pings.setdefault(rank, process.ping.remote())
                if time.monotonic() - answered[rank] > self._timeout and rank in running.values():
                    self._kill_hung(rank)
                    answered[rank] = time.monotonic()

    def _note_end(self, rank: int, run: ray.ObjectRef) -> None:
        try:
            ray.get(run)
        except RayError as error:
            gone = isinstance(error, RayTaskError) and isinstance(error.cause, RankError)
            if isinstance(error, RayTaskError) and isinstance(error.cause, PluginError):
                self._plugin_error = error.cause
            if not self._cause and not gone:  # A rank that misses another is not the cause.
                self._cause = f"learner {rank} failed: {_cause(error)}"

    def _kill_hung(self, rank: int) -> None:
        self._cause = self._cause or f"learner {rank} did not answer for {self._timeout:g} s"
        host, pid = self._places[rank]
        ray.kill(self._processes[rank])
        if host == socket.gethostname():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # A stopped process does not hear Ray.


def pin(cores: Sequence[int]) -> None:
    """Restrict this process to `cores`; none leaves it as it is."""
    if cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # The cores may be gone by now; then any will do.
            os.sched_setaffinity(0, cores)


def _cause(error: RayError) -> str:
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"
    return str(error).strip().splitlines()[0]
