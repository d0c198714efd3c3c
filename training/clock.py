"""Where the time of a run goes, and the health of its processes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from actors.pool import PoolHealth, PoolReport


@dataclass
class RankReport:
    """One rank's report since the last one."""

    pool: PoolReport
    health: PoolHealth
    memory_bytes: int
    communication_seconds: float
    checksum: int
    """Of the parameters, which are the same on all ranks."""


class Clock:
    """Time spent in each part of learner and actors between two lines of metrics."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._frame = 0
        self._learner: dict[str, float] = defaultdict(float)
        self._actors: dict[str, float] = defaultdict(float)

    def restart(self, frame: int) -> None:
        self._start, self._frame = time.perf_counter(), frame
        self._learner.clear()
        self._actors.clear()

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._learner[part] += time.perf_counter() - start

    def add(self, reports: Sequence[RankReport]) -> None:
        for report in reports:
            self._learner["wait"] += report.pool.wait_seconds / len(reports)
            self._learner["collate"] += report.pool.collate_seconds / len(reports)
            self._actors["env"] += report.pool.env_seconds
            self._actors["inference"] += report.pool.inference_seconds
            self._actors["all"] += report.pool.rollout_seconds
        if len(reports) > 1:
            self._learner["communicate"] += sum(report.communication_seconds for report in reports) / len(reports)

    def take(self, frame: int) -> dict[str, float]:
        """Fractions of the learners' and of the actors' time since the last call, and the speed."""
        wall = time.perf_counter() - self._start
        metrics = {f"time/{part}": seconds / wall for part, seconds in self._learner.items()}
        if total := self._actors.pop("all", 0.0):
            metrics |= {f"time/actor_{part}": seconds / total for part, seconds in self._actors.items()}
        metrics["charts/frames_per_second"] = (frame - self._frame) / wall
        self.restart(frame)
        return metrics


def health_metrics(reports: Sequence[RankReport]) -> dict[str, float]:
    """Sums over ranks."""
    return {
        "actors/alive": sum(report.health.alive for report in reports),
        "actors/restarted": sum(report.health.restarted for report in reports),
        "memory/learner_mb": sum(report.memory_bytes for report in reports) / 2**20,
        "memory/actors_mb": sum(report.health.memory_bytes for report in reports) / 2**20,
    }
