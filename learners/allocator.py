"""Keep freed memory: page faults on fresh large tensors cost a CPU learner a quarter of its time."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
NEVER = -1
ONE_GIGABYTE = 1 << 30


def keep_freed_memory() -> None:
    """Tells glibc to reuse large blocks instead of returning each to the system; does nothing where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, NEVER)
        mallopt(M_MMAP_THRESHOLD, ONE_GIGABYTE)
