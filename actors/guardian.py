"""A process that removes the processes and files of a local Ray when its owner exits, for whatever reason.

When the owner dies, Ray's servers die with it, but its agents live on for a while, a suspended worker for ever, and the files
of the session remain. The guardian waits for the end of its standard input, which the kernel closes when the owner is gone. It
then kills every process except the owner that writes to a file in the session's directory, and removes the directory. Each of
Ray's processes has its log there and no other process writes there, so no list of processes is needed and the Ray of another
run or user is never touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

LONGEST_PARENT = 24
"""Longest path of the parent directory: the paths of Ray's sockets below it must stay under 108 characters."""
SHUTDOWN_SECONDS = 10.0


class Guardian:
    """Creates the directory of a local Ray; cleans up after `close` or when this process dies."""

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        self.directory = Path(tempfile.mkdtemp(prefix="hindcast-", dir=parent if len(parent) <= LONGEST_PARENT else "/tmp"))
        command = [sys.executable, "-P", __file__, str(self.directory), str(os.getpid())]
        # In a session of its own, so that Ctrl-C reaches the owner only.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def close(self) -> None:
        """Clean up now, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(SHUTDOWN_SECONDS)


def clear(directory: Path, owner: int) -> None:
    """Kill the processes that write below `directory`, other than to the logs of process `owner`, then remove it."""
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    while (writers := _writers(directory, owner)) and time.monotonic() < deadline:
        for process in writers:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(writers, timeout=0.2)
    shutil.rmtree(directory, ignore_errors=True)


def _writers(directory: Path, owner: int) -> list[psutil.Process]:
    """Processes with a file open for writing below `directory`, other than a log of process `owner`."""
    inside, owners = f"{directory}/", f"_{owner}.log"
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            paths = [file.path for file in process.open_files() if file.mode != "r"]
            if any(path.startswith(inside) and not path.endswith(owners) for path in paths):
                found.append(process)
    return found


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    clear(Path(sys.argv[1]), owner=int(sys.argv[2]))
