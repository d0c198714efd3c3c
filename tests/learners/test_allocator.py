"""Freed memory is kept, until it is released."""

import subprocess
import sys

SCRIPT = """
import psutil, torch
from learners.allocator import keep_freed_memory, release_freed_memory
memory = lambda: psutil.Process().memory_info().rss / 2**20
keep_freed_memory()
before = memory()
blocks = [torch.ones(2**20) for _ in range(100)]  # 4 MB each.
last = torch.ones(2**20)
del blocks
kept = memory()
release_freed_memory()
print(before, kept, memory())
"""


def test_freed_memory_is_kept_until_it_is_released():
    printed = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    before, kept, released = map(float, printed.split())
    assert kept > before + 350
    assert released < before + 50
