"""Starting, joining and leaving Ray, local or on a cluster, and reading its errors."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private import ray_constants
from ray.exceptions import RayTaskError
from ray.job_config import JobConfig

from actors.guardian import Guardian
from configs.errors import PoolError
from configs.installation import ROOT, in_checkout, installed_packages

CONNECT_SECONDS = 5.0
STORE_BYTES = 512 * 2**20
"""Size of the object store; trajectories in flight and a few versions of the weights take a fraction of it."""
RAY_MONITORS = ("/monitor.py", "/log_monitor.py", "/dashboard.py")

_guardian: Guardian | None = None
"""Guardian of the local Ray that this process has started; None if it has started none."""


def start_ray(address: str, num_cpus: int) -> None:
    """Join the cluster at `address`, or start a local Ray on 127.0.0.1 that ends with this process."""
    stop_ray()
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray runs workers at niceness 15, where any other load on the machine starves them.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with _sigterm_handler_restored():
        _start(address, num_cpus)


def _start(address: str, num_cpus: int) -> None:
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        _check_reachable(address)
        code = code_runtime_env()
        if not address.startswith("ray://"):  # Whose server would have to unpickle it.
            common["job_config"] = _WithoutCurrentDirectory()
        try:
            ray.init(address, runtime_env=code, **common)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise PoolError(f"cannot join Ray at {address}: {str(error).splitlines()[0]}") from error
        return
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    # The server records 100,000 actor calls for the dashboard, which is off: its memory would grow for hours.
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    global _guardian
    _guardian = Guardian()
    with _loopback_only(), _sigterm_blocked(), _import_path_passed_on():
        ray.init(
            "local",
            job_config=_WithoutCurrentDirectory(),
            num_cpus=num_cpus,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=min(STORE_BYTES, psutil.virtual_memory().available // 4),
            _temp_dir=str(_guardian.directory),
            **common,
        )


class _WithoutCurrentDirectory(JobConfig):
    """A job whose workers do not search the driver's current directory first.

    Ray would put it at the front of their path, and a directory called `envs` or `agents` there would hide our package.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        """Only asked for to decide about the current directory."""
        return True


def code_runtime_env() -> dict[str, Any]:
    """Ray's `runtime_env` that ships Hindcast's own code to the workers of a cluster, without its dependencies."""
    # For a user's modules, on machines that have them at the same place.
    path = {"env_vars": {"PYTHONPATH": import_path()}}
    if in_checkout():
        return path | {"working_dir": str(ROOT), "excludes": [".venv", ".git", "runs", "results", "*.mp4"]}
    packages = installed_packages()
    if not packages:
        raise PoolError(
            "cannot join a cluster: the code to send is not found; run from a checkout or install Hindcast with pip"
        )
    return path | {"py_modules": [str(package) for package in packages]}


def import_path() -> str:
    """The directories that this process imports from, besides those of its Python, as PYTHONPATH."""
    absolute = [Path(path).absolute() for path in sys.path]
    of_python = (sys.prefix, sys.base_prefix)
    return os.pathsep.join(str(path) for path in absolute if not any(path.is_relative_to(prefix) for prefix in of_python))


@contextmanager
def _import_path_passed_on() -> Iterator[None]:
    """Context in which started processes can import what this one can, such as a user's task or torso."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = import_path()
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def node_address() -> str:
    """Address at which other nodes of the cluster reach this one."""
    return ray.util.get_node_ip_address()


def stop_ray() -> None:
    """Leave a cluster, or end a local Ray with all its processes and files."""
    global _guardian
    if _guardian is not None:
        _kill_monitors()
    ray.shutdown()
    if _guardian is not None:
        _guardian.close()
        _guardian = None


def _kill_monitors() -> None:
    """Kill Ray's monitor processes, which have nothing to save.

    `ray.shutdown` sends each a SIGTERM, which they do not receive, and waits a second for it.
    """
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(argument.endswith(RAY_MONITORS) for argument in child.cmdline()):
                child.kill()


def error_cause(error: Exception) -> str:
    """The cause of a Ray error, in one line."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines()
    return lines[-1] if "creation task" in lines[0] else lines[0]


def error_kind(error: Exception) -> str:
    """Kind of a Ray error: the type of the exception raised by the remote code, or else that of Ray's own exception."""
    return type(error.cause if isinstance(error, RayTaskError) else error).__name__


@contextmanager
def _loopback_only() -> Iterator[None]:
    """Context in which Ray starts on 127.0.0.1 and listens there only.

    Ray replaces a loopback address given as a parameter by a public one, unless clusters are disabled. So they are disabled
    during a local start.
    """
    supported = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = supported


@contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """Context in which started processes inherit a blocked SIGTERM.

    Schedulers that pre-empt a job send SIGTERM to all its processes. Ray's must live until the learner has saved a checkpoint.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _sigterm_handler_restored() -> Iterator[None]:
    """Context that restores the SIGTERM handler, which Ray replaces by one that exits at once."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _check_reachable(address: str) -> None:
    """Raise PoolError if nothing listens at `address`; Ray itself would retry for more than ten minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise PoolError(f"cannot join Ray at {address}: {error.strerror or error}") from None
