"""Starting, joining and leaving Ray, local or on a cluster, and reading its errors."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private import ray_constants, worker
from ray.exceptions import AuthenticationError, RayTaskError
from ray.job_config import JobConfig

from actors import ray_log
from actors.guardian import Guardian
from configs.errors import PoolError
from configs.installation import ROOT, in_checkout, installed_packages
from configs.plugins import plugged_in

CONNECT_SECONDS = 5.0
STORE_BYTES = 512 * 2**20
"""Size of the object store; trajectories in flight and a few versions of the weights take a fraction of it."""
TOKEN = Path.home() / ".ray" / "auth_token"
"""Where Ray looks for a token, and where it keeps the one of local clusters."""
NODE_SECONDS = 5.0
"""Between two looks at the nodes of a cluster."""
RAY_MONITORS = ("/monitor.py", "/log_monitor.py", "/dashboard.py")

_guardian: Guardian | None = None
"""Guardian of the local Ray that this process has started; None if it has started none."""


def start_ray(address: str, num_cpus: int) -> None:
    """Join the cluster at `address`, or start a local Ray on 127.0.0.1 that ends with this process."""
    stop_ray()
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray runs workers at niceness 15, where any other load on the machine starves them.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if address:
        _check_reachable(address)
    ray_log.capture()
    worker.print_to_stdstream = _log_message
    try:
        with _sigterm_handler_restored():
            _start(address, num_cpus)
    except BaseException:
        stop_ray()
        raise


def _log_message(data: dict[str, Any], ignore_prefix: bool) -> None:
    """Ray's way to show messages of its servers: deaths of workers and nodes, with dumps of their states."""
    for line in data["lines"]:
        ray_log.write(f"({data['pid']}) {line}")


def _start(address: str, num_cpus: int) -> None:
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address:
        code = code_runtime_env()
        if not address.startswith("ray://"):  # Whose server would have to unpickle it.
            common["job_config"] = _WithoutCurrentDirectory()
        try:
            ray.init(address, runtime_env=code, **common)
        except (ConnectionError, ValueError, RuntimeError, AuthenticationError) as error:
            raise PoolError(f"cannot join Ray at {address}: {_reason(error)}") from error
        return
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    # The server records 100,000 actor calls for the dashboard, which is off: its memory would grow for hours.
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    keep_token_private()
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


def _reason(error: Exception) -> str:
    """Why a cluster was not joined, in one line; that it asks for a token is only in the log."""
    refused = isinstance(error, AuthenticationError) or "InvalidAuthToken" in ray_log.text()
    if not refused:
        return str(error).splitlines()[0]
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH") or TOKEN.is_file()
    found = "refuses the token of this machine" if given else "asks for a token, and there is none on this machine"
    return f"the cluster {found}; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the cluster's, or copy it to {TOKEN}"


def keep_token_private() -> None:
    """Make sure that the token of a local Ray, if it is kept in the home directory, is readable by its owner alone.

    Ray would write it readable by all.
    """
    disabled = os.environ.get("RAY_AUTH_MODE", "token").lower() != "token"
    if disabled or os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    with suppress(OSError):  # Ray says what is wrong with the home directory.
        TOKEN.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not TOKEN.exists():
            # Linked when it is whole: another run may look for it now.
            with tempfile.NamedTemporaryFile("w", dir=TOKEN.parent) as file:
                file.write(secrets.token_hex(32))
                file.flush()
                with suppress(FileExistsError):
                    os.link(file.name, TOKEN)
        elif TOKEN.stat().st_mode & 0o077:
            TOKEN.chmod(0o600)


def code_runtime_env() -> dict[str, Any]:
    """Ray's `runtime_env` that ships Hindcast's code and what was plugged in to the workers of a cluster.

    Without dependencies; the import path is for a user's other modules, on machines that have them at the same place.
    """
    common: dict[str, Any] = {"env_vars": {"PYTHONPATH": import_path()}}
    if plugged_in():
        common["py_modules"] = plugged_in()
    if in_checkout():
        return common | {"working_dir": str(ROOT), "excludes": [".venv", ".git", "runs", "results", "*.mp4"]}
    packages = installed_packages()
    if not packages:
        raise PoolError(
            "cannot join a cluster: the code to send is not found; run from a checkout or install Hindcast with pip"
        )
    return common | {"py_modules": plugged_in() + [str(package) for package in packages]}


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


class NodeWatch:
    """Says which nodes of the cluster have left or joined since it last looked."""

    def __init__(self) -> None:
        self._nodes = self._alive()
        self._looked = time.monotonic()

    def changes(self) -> list[str]:
        """One line per node; nothing if the last look was less than NODE_SECONDS ago."""
        if time.monotonic() - self._looked < NODE_SECONDS:
            return []
        before, self._nodes, self._looked = self._nodes, self._alive(), time.monotonic()
        lost = [f"node {name} has left the cluster" for node, name in before.items() if node not in self._nodes]
        return lost + [f"node {name} has joined the cluster" for node, name in self._nodes.items() if node not in before]

    @staticmethod
    def _alive() -> dict[str, str]:
        return {
            node["NodeID"]: f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            for node in ray.nodes()
            if node["Alive"]
        }


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
    ray_log.release()


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
