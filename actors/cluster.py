"""Ray, local or shared: how it is started, joined, left, and asked what went wrong."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray
from ray._private import ray_constants
from ray.exceptions import RayTaskError

from actors.guardian import Guardian
from configs.errors import PoolError
from configs.installation import ROOT, in_checkout, installed_packages

CONNECT_SECONDS = 5.0
STORE_BYTES = 512 * 2**20
"""Object store: trajectories under way and a few versions of the weights take a fraction of it."""
HELPERS = ("/monitor.py", "/log_monitor.py", "/dashboard.py")

_guardian: Guardian | None = None
"""Of the local Ray that this process has started, if it has."""


def start_ray(address: str, num_cpus: int) -> None:
    """Joins the cluster at `address`, or starts a local one that only this machine can reach and that ends with us."""
    stop_ray()
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray runs workers at niceness 15, where any other load on the machine starves them.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with _keeping_sigterm():
        _start(address, num_cpus)


def _start(address: str, num_cpus: int) -> None:
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        _check_reachable(address)
        code = code_runtime_env()
        try:
            ray.init(address, runtime_env=code, **common)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise PoolError(f"cannot join Ray at {address}: {str(error).splitlines()[0]}") from error
        return
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    # The server would remember 100,000 calls of actors for a dashboard that is off: its memory would grow for hours.
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    global _guardian
    _guardian = Guardian()
    with _loopback_only(), _deaf_to_sigterm():
        ray.init(
            "local",
            num_cpus=num_cpus,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=min(STORE_BYTES, psutil.virtual_memory().available // 4),
            _temp_dir=str(_guardian.directory),
            **common,
        )


def code_runtime_env() -> dict[str, Any]:
    """Ray's `runtime_env` that brings Hindcast's code, and nothing installed beside it, to the workers of a cluster."""
    if in_checkout():
        return {"working_dir": str(ROOT), "excludes": [".venv", ".git", "runs", "results", "*.mp4"]}
    packages = installed_packages()
    if not packages:
        raise PoolError(
            "cannot join a cluster: Hindcast is neither in a checkout nor installed with pip, so it is not known what to send"
        )
    return {"py_modules": [str(package) for package in packages]}


def stop_ray() -> None:
    """Leaves a cluster; ends a local Ray with all its processes and files."""
    global _guardian
    if _guardian is not None:
        _kill_helpers()
    ray.shutdown()
    if _guardian is not None:
        _guardian.dismiss()
        _guardian = None


def _kill_helpers() -> None:
    """Kills those of Ray's processes that have nothing to finish.

    Ray asks each to leave, one after the other, and waits a second for it; deaf to SIGTERM, they would cost all those seconds.
    """
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(argument.endswith(HELPERS) for argument in child.cmdline()):
                child.kill()


def error_cause(error: Exception) -> str:
    """The line of a Ray error that says what happened."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines()
    return lines[-1] if "creation task" in lines[0] else lines[0]


def error_kind(error: Exception) -> str:
    """What failures of the same cause have in common: the type of what the code raised, or how Ray lost its process."""
    return type(error.cause if isinstance(error, RayTaskError) else error).__name__


@contextmanager
def _loopback_only() -> Iterator[None]:
    """Has Ray take 127.0.0.1 for its address, and so listen there alone.

    Asked for by its parameter, this address is replaced by one that other machines reach, except where Ray supports no
    clusters: so for the length of a local start it supports none.
    """
    supported = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = supported


@contextmanager
def _deaf_to_sigterm() -> Iterator[None]:
    """Processes started meanwhile do not hear SIGTERM.

    Systems that pre-empt a job send it to all its processes. Ray's must stay until the learner has saved and ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Puts back the process's own SIGTERM handler, which Ray replaces by one that exits at once."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _check_reachable(address: str) -> None:
    """Raises PoolError where nothing listens: Ray itself would go on trying for more than ten minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise PoolError(f"cannot join Ray at {address}: {error.strerror or error}") from None
