"""Measurements in separate processes, which are killed at once and silently when the command is stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from configs.errors import PoolError, StopRequested

PROCESSES = multiprocessing.get_context("spawn")


def measure_in_processes(
    measure: Callable[..., Any], arguments: tuple[Any, ...], copies: int, stop: threading.Event
) -> list[Any]:
    """The results of `measure(*arguments)` in `copies` new processes; raises StopRequested if `stop` is set meanwhile."""
    results = PROCESSES.SimpleQueue()
    workers = [PROCESSES.Process(target=_measure, args=(measure, arguments, results), daemon=True) for _ in range(copies)]
    # A terminal sends Ctrl-C to all processes; children inherit the mask, so only this process reacts.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        for worker in workers:
            worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    measured: list[Any] = []
    try:
        while len(measured) < copies:
            if stop.is_set():
                raise StopRequested
            if not results.empty():
                measured.append(results.get())
            elif any(worker.exitcode for worker in workers):
                raise PoolError("a process of the benchmark died; its message is printed above")
            else:
                time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    return measured


def _measure(measure: Callable[..., Any], arguments: tuple[Any, ...], results: Any) -> None:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    results.put(measure(*arguments))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
