"""Atomic writes, and bounded reads of untrusted files.

What is written is whole or absent. What is read is a plain file of bounded size: links are not followed, nothing
blocks, and JSON is the only language understood.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

_UNFINISHED = re.compile(r"\..+\.\d+\.tmp")


class UnsafeFileError(OSError):
    """A file of a kind that is never read, such as a link or a device; the message names the kind."""


def read_bounded(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most `limit` bytes; raises OSError for anything else."""
    if path.is_symlink():
        raise UnsafeFileError(f"{path} is a link, which is not followed")
    # A pipe or device would block on opening or never end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeFileError(f"{path} is not a plain file")
        if status.st_size > limit:
            raise UnsafeFileError(f"{path} has {status.st_size} bytes, more than the {limit} it may have")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def parse_json(text: bytes | str) -> Any:
    """Raises ValueError for whatever is not JSON, however it is nested."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file's content atomically: after a crash it is either old or new, never partial."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)


def is_unfinished(path: Path) -> bool:
    """Whether the name is one that a `write_atomically` that was killed leaves behind."""
    return _UNFINISHED.fullmatch(path.name) is not None


def remove_unfinished(directory: Path) -> None:
    """Removes what a `write_atomically` that was killed left behind."""
    for path in filter(is_unfinished, directory.iterdir()):
        path.unlink(missing_ok=True)


def explain(error: OSError) -> str:
    """The readable part of an OSError."""
    return str(error) if isinstance(error, UnsafeFileError) else error.strerror or str(error)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
