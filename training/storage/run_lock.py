"""A lock file: one command at a time per directory.

The lock is the kernel's, on a file in the directory: it goes with the process that holds it, however that ends, so a
dead owner never has to be argued with.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from configs.errors import RunError
from training.storage.files import explain, remove_unfinished
from training.storage.run_directory import LOCK

log = logging.getLogger(__name__)

UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
MAX_OWNER_BYTES = 20


class InUseError(RunError):
    """Another command holds the lock of the directory."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the lock of `directory`, which is made if need be; raises InUseError if another command holds it.

    What an earlier command was writing there when it was killed is removed.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise RunError(f"cannot write to {directory}: {explain(error)}") from None
    try:
        _acquire(descriptor, directory)
        with suppress(OSError):  # What cannot be removed is in nobody's way.
            remove_unfinished(directory)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, MAX_OWNER_BYTES, 0).decode(errors="replace").strip()
        whose = f" (process {owner})" if owner.isdecimal() else ""
        raise InUseError(f"{directory} is in use by another command{whose}; wait for it to end or choose another") from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise RunError(f"cannot lock {directory}: {explain(error)}") from None
        log.warning("the file system of %s has no locks: see to it that no other command uses it", directory)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # On a full disk the owner stays unnamed.
