"""Ends what a local Ray leaves behind, whatever the way out of the process that started it.

Ray's servers are killed with the process that started them, but its agents outlive them for a while, a suspended worker for
ever, and the files of the session always. The guardian is a process of its own that waits for its standard input to end,
which the kernel sees to when the owner is gone. It then kills every process but the owner that writes to a file in the
session's directory, where each of Ray's processes has its log and nobody else has anything, and removes the directory. So
it needs no list of processes to be right, and the Ray of another run or another user is never touched.
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
"""Characters before the directory's own name: Ray's sockets lie deep in it, and their paths must stay below 108."""
SHUTDOWN_SECONDS = 10.0


class Guardian:
    """Gives a local Ray its directory, and clears it when dismissed or when this process dies."""

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        self.directory = Path(tempfile.mkdtemp(prefix="hindcast-", dir=parent if len(parent) <= LONGEST_PARENT else "/tmp"))
        command = [sys.executable, "-P", __file__, str(self.directory), str(os.getpid())]
        # A session of its own: Ctrl-C at the terminal is for the owner.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def dismiss(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(SHUTDOWN_SECONDS)


def clear(directory: Path, owner: int) -> None:
    """Kills what still writes below `directory`, except to the logs of the process `owner`, then removes it."""
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    while (writers := _writers(directory, owner)) and time.monotonic() < deadline:
        for process in writers:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(writers, timeout=0.2)
    shutil.rmtree(directory, ignore_errors=True)


def _writers(directory: Path, owner: int) -> list[psutil.Process]:
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
