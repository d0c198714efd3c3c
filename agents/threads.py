"""How many threads torch computes with, and no more of them than the environment allows.

A team of OpenMP threads waits for its members by spinning. A member that the environment forbids never comes, and one that
other work keeps from its core comes late.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def allowed_threads(wanted: int) -> int:
    """`wanted`, or OMP_THREAD_LIMIT, which some batch systems set, if that is less."""
    limit = os.environ.get("OMP_THREAD_LIMIT", "").strip()
    return max(1, min(wanted, int(limit))) if limit.isdecimal() else wanted


def set_threads(wanted: int) -> None:
    """Has torch compute with so many threads, or with as many as are allowed."""
    torch.set_num_threads(allowed_threads(wanted))


@contextmanager
def one_thread() -> Iterator[None]:
    """For small factorisations: a team takes longer to agree than one thread to compute, most of all on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        set_threads(before)
