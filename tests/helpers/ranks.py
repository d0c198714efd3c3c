"""Ranks as threads of one process, for tests of the mathematics."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from agents.batch import Batch, env_axis

DEADLINE = 60


class ThreadRank:
    def __init__(self, rank, size, barrier, board):
        self.rank, self.size = rank, size
        self._barrier, self._board = barrier, board

    def _exchange(self, value):
        self._board[self.rank] = value
        self._barrier.wait()
        values = list(self._board)
        self._barrier.wait()
        return values

    def sum_(self, tensor):
        return tensor.copy_(sum(self._exchange(tensor.detach().clone())))

    def start_sum(self, tensors):
        parts = self._exchange([tensor.detach().clone() for tensor in tensors])
        return lambda: [torch.stack(part).sum(0) for part in zip(*parts, strict=True)]

    def gather(self, value):
        values = self._exchange(value)
        return values if self.rank == 0 else []

    def take_seconds(self):
        return 0.0


def on_ranks(size, function):
    """Results of `function(rank)` on each of `size` ranks that run at once."""
    barrier, board = threading.Barrier(size, timeout=DEADLINE), [None] * size
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(_guarded, function, ThreadRank(rank, size, barrier, board), barrier) for rank in range(size)]
        errors = [future.exception() for future in futures]
    cause = [error for error in errors if error and not isinstance(error, threading.BrokenBarrierError)]
    for error in cause or [error for error in errors if error]:
        raise error
    return [future.result() for future in futures]


def _guarded(function, rank, barrier):
    try:
        return function(rank)
    except BaseException:
        barrier.abort()  # Else the others wait until the deadline.
        raise


def part_of(batch, rank):
    """The rank's environments of a batch."""
    split = {name: value.tensor_split(rank.size, env_axis(name))[rank.rank] for name, value in vars(batch).items()}
    return Batch(**split)
