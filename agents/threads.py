"""The number of torch's threads, limited by OMP_THREAD_LIMIT.

OpenMP threads wait for each other by spinning. With more threads than the limit they wait for ever, and on busy cores they
wait long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def allowed_threads(wanted: int) -> int:
    """The lesser of `wanted` and OMP_THREAD_LIMIT, which some batch systems set."""
    limit = os.environ.get("OMP_THREAD_LIMIT", "").strip()
    return max(1, min(wanted, int(limit))) if limit.isdecimal() else wanted


def set_threads(wanted: int) -> None:
    """Set torch's number of threads to `wanted`, or to the limit if that is less."""
    torch.set_num_threads(allowed_threads(wanted))


@contextmanager
def one_thread() -> Iterator[None]:
    """Context with a single torch thread, for small factorisations: synchronising threads costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        set_threads(before)
