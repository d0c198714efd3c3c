"""Sums over processes: the same bits on all ranks, over sockets and through shared memory."""

import multiprocessing
import os
import time

import numpy as np
import pytest
import torch

from configs.errors import RankError
from learners import process_group as module
from learners.process_group import LOOPBACK, Rendezvous, interface_towards, listen, process_group

SIZES = (3, 1000, 40_001)
ROUNDS = 3


def vectors(rank, size, dtype):
    generator = torch.Generator().manual_seed(1000 * rank + size)
    return [torch.randn(size, generator=generator, dtype=dtype) for _ in range(ROUNDS)]


def sums_of_rank(rank, rendezvous, listener, least, answers):
    module.MIN_SHARED = least
    torch.set_num_threads(1)
    with process_group(rendezvous, rank, torch.device("cpu"), listener) as ranks:
        found = []
        for dtype in (torch.float32, torch.float64):
            for size in SIZES:
                for vector in vectors(rank, size, dtype):
                    first, second = vector[: size // 3], vector[size // 3 :].reshape(-1, 1)
                    wait = ranks.start_sum([first, second])
                    time.sleep(0.01 * rank)  # Meanwhile the other rank may write its next vector.
                    parts = wait()
                    assert [part.shape for part in parts] == [first.shape, second.shape]
                    assert torch.equal(-torch.cat([part.flatten() for part in parts]), ranks.sum_(-vector))
                    found.append(torch.cat([part.flatten() for part in parts]).double().numpy())
        answers.put((rank, found, [shared is not None for shared in ranks._shared.values()]))


def sums_of_ranks(number, least):
    listener = listen(LOOPBACK)
    rendezvous = Rendezvous(LOOPBACK, listener.getsockname()[1], number, timeout=60)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    started = [
        context.Process(target=sums_of_rank, args=(rank, rendezvous, listener if rank == 0 else None, least, answers))
        for rank in range(number)
    ]
    for process in started:
        process.start()
    try:
        return sorted(answers.get(timeout=60) for _ in started)
    finally:
        for process in started:
            process.join(timeout=10)
            process.kill()
        listener.close()


def test_ranks_use_the_interface_that_reaches_the_first(monkeypatch):
    assert interface_towards(LOOPBACK) == "lo"
    with pytest.raises(RankError, match=r"learners cannot meet at no-such-host.invalid"):
        interface_towards("no-such-host.invalid")
    monkeypatch.setattr(module.psutil, "net_if_addrs", dict)
    with pytest.raises(RankError, match=r"no network interface has the address 127.0.0.1"):
        interface_towards(LOOPBACK)


@pytest.mark.parametrize(("number", "least"), [(2, 100), (3, 100), (2, 10**9)])
def test_sums_are_right_and_equal_to_the_bit_on_all_ranks(number, least):
    answers = sums_of_ranks(number, least)
    expected = [
        sum(vectors(rank, size, dtype)[i].double().numpy() for rank in range(number))
        for dtype in (torch.float32, torch.float64)
        for size in SIZES
        for i in range(ROUNDS)
    ]
    for _, found, shared in answers:
        assert shared == ([] if least > 10**6 else [True] * 4)
        for ours, first, exact in zip(found, answers[0][1], expected, strict=True):
            assert np.array_equal(ours, first)
            np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-5)


def test_sums_go_over_sockets_where_memory_cannot_be_shared(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    answers = sums_of_ranks(2, 100)
    assert [shared for _, _, shared in answers] == [[False] * 4] * 2
    assert all(np.array_equal(a, b) for a, b in zip(answers[0][1], answers[1][1], strict=True))
