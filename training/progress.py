"""Progress output: a live line on a terminal, otherwise plain lines at growing intervals.

Nobody may be listening: a log on a full disk, a pipe to a process that is dead. That never stops the work.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

FIRST_SECONDS = (5.0, 15.0, 30.0, 60.0)
"""When the first plain lines come, from the start."""
PLAIN_SECONDS = 60.0
"""Between two plain lines after that."""
SPEED_WINDOW_SECONDS = 30.0


def tell(line: str) -> None:
    """Print to stderr; failures are ignored."""
    if sys.stderr is not None:
        encoding = sys.stderr.encoding or "ascii"
        with suppress(OSError):
            print(line.encode(encoding, "replace").decode(encoding), file=sys.stderr, flush=True)


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """A curve as text, one character for the mean of each of `width` stretches; empty if there are fewer than two values."""
    if len(values) < 2:
        return ""
    edges = [round(i * len(values) / min(width, len(values))) for i in range(min(width, len(values)) + 1)]
    means = [sum(values[i:j]) / (j - i) for i, j in pairwise(edges)]
    low, high = min(means), max(means)
    return "".join(BARS[round((len(BARS) - 1) * (mean - low) / (high - low))] if high > low else BARS[0] for mean in means)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def next_line(elapsed: float) -> float:
    """When the next plain line is due after one at `elapsed`, both in seconds from the start."""
    return min([second for second in FIRST_SECONDS if second > elapsed] + [elapsed + PLAIN_SECONDS])


def on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class Progress:
    """Counts things, each a `unit`, up to `total`, with speed over the last `window` seconds, time left and a remark.

    With `starts_slowly` the time until the first ones, in which processes start, does not count.
    """

    def __init__(
        self,
        label: str,
        total: int,
        done: int = 0,
        unit: str = "frame",
        window: float = SPEED_WINDOW_SECONDS,
        starts_slowly: bool = False,
    ):
        self._label, self._total, self._unit, self._window = label, total, unit, window
        self._starting = starts_slowly
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), done)])
        self._start = time.monotonic()
        self._next_line = next_line(0.0)
        self._bar: RichProgress | None = None
        if on_terminal():
            self._bar = RichProgress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[remark]}"),
                TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True),
            )  # fmt: skip
            self._row = self._bar.add_task(label, total=total, completed=done, remark="")
            with suppress(OSError):
                self._bar.start()

    def update(self, done: int, remark: str = "") -> None:
        now = time.monotonic()
        if self._starting:
            self._recent.clear()
            self._starting = False
        self._recent.append((now, done))
        while now - self._recent[0][0] > self._window and len(self._recent) > 2:
            self._recent.popleft()
        if self._bar is not None:
            self._bar.update(self._row, completed=done, remark=self._describe(done, remark))
        elif now - self._start >= self._next_line:
            self._next_line = next_line(now - self._start)
            tell(f"{self._label}: {self._describe(done, remark)}, {self._time_left(done)} left")

    def close(self) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()

    def _speed(self) -> float:
        (start, before), (end, after) = self._recent[0], self._recent[-1]
        return (after - before) / (end - start) if end > start else 0.0

    def _describe(self, done: int, remark: str) -> str:
        speed = self._speed()
        text = f"{done:,} / {counted(self._total, self._unit)}"
        if len(self._recent) > 1:
            text += f", {speed:,.0f}/s" if speed >= 10 else f", {60 * speed:,.1f}/min"
        return f"{text}, {remark}" if remark else text

    def _time_left(self, done: int) -> str:
        speed = self._speed()
        if not speed:
            return "unknown time"
        minutes, seconds = divmod(math.ceil((self._total - done) / speed), 60)
        return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
