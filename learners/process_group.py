"""The ranks of a run as processes, over torch.distributed: gloo on CPU, nccl where each rank has a GPU."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from configs.errors import RankError
from learners.shared_memory import SharedVector, share_vector

LOOPBACK = "127.0.0.1"
MIN_SHARED = 2**14
"""Elements of a vector that is summed through shared memory where all ranks are on one machine."""
MEETING_SECONDS = 120.0
"""For all ranks to meet once they have started."""


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks of a round meet."""

    host: str
    port: int
    size: int
    timeout: float
    """Seconds after which a rank that waits for another gives up."""

    @property
    def local(self) -> bool:
        return self.host == LOOPBACK


class ProcessGroup:
    """Sums and messages between ranks; a peer that is gone or late raises RankError."""

    def __init__(self, rank: int, size: int, shares_memory: bool = False):
        self.rank = rank
        self.size = size
        self._shares_memory = shares_memory
        self._shared: dict[tuple[int, torch.dtype], SharedVector | None] = {}
        self._seconds = 0.0

    def sum_(self, tensor: Tensor) -> Tensor:
        with self._measured():
            if (shared := self._shared_vector([tensor])) is not None:
                tensor.copy_(shared.start_sum([tensor])().view_as(tensor))
            else:
                dist.all_reduce(tensor)
        return tensor

    def start_sum(self, tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
        """One reduction of all tensors as one flat vector; at most one at a time."""
        if not tensors:
            return lambda: tensors
        with self._measured():
            if (shared := self._shared_vector(tensors)) is not None:
                finish = shared.start_sum(tensors)
            else:
                finish = _start_sum(torch.cat([tensor.detach().flatten() for tensor in tensors]))

        def wait() -> list[Tensor]:
            with self._measured():
                flat = finish()
            parts = flat.split([tensor.numel() for tensor in tensors])
            return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]

        return wait

    def _shared_vector(self, tensors: list[Tensor]) -> SharedVector | None:
        """Shared memory for the concatenation of `tensors`, if it is large and all ranks can reach it."""
        numel, dtype = sum(tensor.numel() for tensor in tensors), tensors[0].dtype
        if not self._shares_memory or numel < MIN_SHARED or tensors[0].device.type != "cpu":
            return None
        if (numel, dtype) not in self._shared:
            self._shared[numel, dtype] = share_vector(self.rank, self.size, numel, dtype)
        return self._shared[numel, dtype]

    def gather(self, value: Any) -> list[Any]:
        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with self._measured():
            dist.gather_object(value, found)
        return found or []

    def take_seconds(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    @contextmanager
    def _measured(self) -> Iterator[None]:
        start = time.perf_counter()
        with _peers():
            yield
        self._seconds += time.perf_counter() - start


@contextmanager
def process_group(
    rendezvous: Rendezvous,
    rank: int,
    device: torch.device,
    listener: socket.socket | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[ProcessGroup]:
    """Meet the other ranks. Rank 0 brings the socket at which they find it, and `check` raises if one of them is gone.

    Raises RankError if they do not come.
    """
    timeout = timedelta(seconds=rendezvous.timeout)
    # Without it gloo listens on the address that this host's name resolves to, which often is a loopback address.
    os.environ["GLOO_SOCKET_IFNAME"] = interface_towards(rendezvous.host)
    with _peers():
        store = dist.TCPStore(
            rendezvous.host,
            rendezvous.port,
            rendezvous.size,
            is_master=rank == 0,
            timeout=timeout,
            master_listen_fd=None if listener is None else listener.detach(),
            wait_for_workers=False,
        )
        store.set(f"ready/{rank}", "")
        deadline = time.monotonic() + MEETING_SECONDS
        while not store.check([f"ready/{other}" for other in range(rendezvous.size)]):
            check()
            if time.monotonic() > deadline:
                raise RankError(f"not all learners met within {MEETING_SECONDS:g} s")
            time.sleep(0.05)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=rendezvous.size, timeout=timeout)
    try:
        yield ProcessGroup(rank, rendezvous.size, shares_memory=rendezvous.local)
    finally:
        dist.destroy_process_group()


def _start_sum(flat: Tensor) -> Callable[[], Tensor]:
    work = dist.all_reduce(flat, async_op=True)

    def wait() -> Tensor:
        work.wait()
        return flat

    return wait


def interface_towards(host: str) -> str:
    """The network interface through which this machine reaches `host`. Raises RankError if it does not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:  # Nothing is sent.
            probe.connect(address)
            own = probe.getsockname()[0]
    except OSError as error:
        raise RankError(f"learners cannot meet at {host}: {error.strerror}") from None
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == own for each in addresses):
            return name
    raise RankError(f"learners cannot meet at {host}: no network interface has the address {own}")


def listen(host: str, port: int = 0) -> socket.socket:
    """A socket that accepts ranks on `host` alone; port 0 takes a free one. Raises RankError if the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise RankError(f"learners cannot meet at {host}:{port}: {error.strerror}") from None
    return listener


@contextmanager
def _peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RankError(f"a learner is gone or does not answer ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
