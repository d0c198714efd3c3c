"""Keep freed memory for reuse: page faults on new large tensors cost a CPU learner a quarter of its time."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
NEVER = -1
ONE_GIGABYTE = 1 << 30


def keep_freed_memory() -> None:
    """Tells glibc to reuse large blocks instead of returning each to the system; does nothing where there is no glibc."""
    if mallopt := _glibc("mallopt"):
        mallopt(M_TRIM_THRESHOLD, NEVER)
        mallopt(M_MMAP_THRESHOLD, ONE_GIGABYTE)


def release_freed_memory() -> None:
    """Return all free memory to the system once; kept memory fragments over hours."""
    if malloc_trim := _glibc("malloc_trim"):
        malloc_trim(0)


def _glibc(function: str) -> Any:
    return getattr(ctypes.CDLL(None), function, None) if sys.platform.startswith("linux") else None
