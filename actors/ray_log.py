"""The log of a run's Ray: what Ray and gRPC print goes there instead of to the terminal, which gets one line per event.

Ray's C++ code writes to descriptor 2 whatever Python does, hundreds of lines for a node that is lost. While Ray runs,
descriptor 2 is the log, provided that Python's own stderr has a descriptor of its own (`separate_stderr`). Until the run
directory exists the log has no name, and a command that fails before leaves none.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

NAME = "ray.log"
STDERR = 2

_log: BinaryIO | None = None
_terminal: int | None = None
"""Copy of descriptor 2 as it was before the capture."""
_kept: Path | None = None


def separate_stderr() -> None:
    """Give Python's stderr a descriptor of its own, so that descriptor 2 can lead elsewhere."""
    old = sys.stderr
    if old is None or not _python_writes_to(STDERR):
        return
    with contextlib.suppress(OSError):
        # Without a buffer: what a full disk or a dead reader refuses is lost at once and not tried again at exit.
        raw: Any = io.FileIO(os.dup(STDERR), "w")
        sys.stderr = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=True, write_through=True)


def capture() -> None:
    """From here to `release` the log gets what Ray's loggers and native code print."""
    global _log, _terminal
    if _log is not None:
        return
    _log = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    _redirect()
    logger = logging.getLogger("ray")
    logger.handlers = [_Handler()]
    logger.propagate = False


def keep(directory: Path) -> None:
    """Continue the log in a file of `directory`, which gets what was logged so far; without a file where there can be none."""
    global _log, _kept
    if _log is None:
        return
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        file = os.fdopen(os.open(directory / NAME, flags, 0o666), "r+b", buffering=0)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            return
        _log.seek(0)
        shutil.copyfileobj(_log, file)
        _log.close()
        _log, _kept = file, directory / NAME
        if _terminal is not None:
            os.dup2(_log.fileno(), STDERR)


def text() -> str:
    """What was logged so far."""
    if _log is None:
        return ""
    _log.seek(0)
    return _log.read().decode(errors="replace")


def write(line: str) -> None:
    """Add a line; failures are ignored."""
    if _log is not None:
        with contextlib.suppress(OSError):
            _log.write(line.rstrip("\n").encode(errors="replace") + b"\n")


def release() -> None:
    """End the capture; an empty log is removed."""
    global _log, _terminal, _kept
    if _log is None:
        return
    if _terminal is not None:
        os.dup2(_terminal, STDERR)
        os.close(_terminal)
    if _kept is not None and not os.fstat(_log.fileno()).st_size:
        _kept.unlink(missing_ok=True)
    _log.close()
    _log = _terminal = _kept = None


class _Handler(logging.Handler):
    """Into the log, and nowhere once it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        write(self.format(record))


def _redirect() -> None:
    global _terminal
    if _log is None or _python_writes_to(STDERR):
        return
    with contextlib.suppress(OSError):  # Descriptor 2 may be closed.
        _terminal = os.dup(STDERR)
        os.dup2(_log.fileno(), STDERR)


def _python_writes_to(descriptor: int) -> bool:
    if sys.stderr is None:
        return True  # Whatever has the descriptor now is not a terminal of ours.
    try:
        return sys.stderr.fileno() == descriptor
    except (OSError, ValueError, AttributeError):
        return False
