"""Progress of a sweep: a live table on a terminal, one line per minute elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from studies.compare.sweep import Trial
from training.progress import next_line, on_terminal, tell
from training.storage.files import parse_json

MAX_ROWS = 20
MAX_READ_BYTES = 1 << 20


class Follower:
    """Reads the metrics of a trial while they are written, from the beginning of the file."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = 0
        self.last: dict[str, Any] = {}

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Complete lines since the last call, without damaged ones; a file that was truncated is read again from its start."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                while chunk := file.read(MAX_READ_BYTES):
                    end = chunk.rfind(b"\n") + 1
                    if not end:
                        break
                    self._offset += end
                    file.seek(self._offset)
                    for text in chunk[:end].splitlines():
                        if (line := _metric(text)) is not None:
                            self.last = line
                            yield line
        except OSError:  # Not there yet, or not readable: the trial itself reports that.
            return


def _metric(text: bytes) -> dict[str, Any] | None:
    try:
        line = parse_json(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("frame"), int) else None


class SweepProgress:
    """Shows the running and the failed trials, and counts the others."""

    def __init__(self, trials: list[Trial], followers: dict[str, Follower]):
        self._trials = trials
        self._followers = followers
        self._start = time.monotonic()
        self._next_line = next_line(0.0)
        self._live: Live | None = None
        if on_terminal():
            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            with suppress(OSError):
                self._live.start()

    def show(self, running: set[str], finished: set[str], failed: dict[str, str]) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.update(self._table(running, finished, failed), refresh=True)
        elif (elapsed := time.monotonic() - self._start) >= self._next_line:
            self._next_line = next_line(elapsed)
            tell(self._summary(running, finished, failed))

    def close(self) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()

    def _table(self, running: set[str], finished: set[str], failed: dict[str, str]) -> Table:
        table = Table(caption=self._summary(running, finished, failed))
        table.add_column("trial")
        for column in ("frames", "frames/s", "return", "left"):
            table.add_column(column, justify="right")
        shown = [trial for trial in self._trials if trial.name in running or trial.name in failed]
        for trial in shown[:MAX_ROWS]:
            line = self._followers[trial.name].last
            if trial.name in failed:
                table.add_row(trial.name, "failed", "", "", "", style="red")
                continue
            speed, score = line.get("charts/frames_per_second"), line.get("charts/episode_return")
            left = trial.config.run.frames - line.get("frame", 0)
            table.add_row(
                trial.name,
                f"{line['frame']:,} / {trial.config.run.frames:,}" if line else "starting",
                f"{speed:,.0f}" if speed else "",
                "" if score is None else f"{score:,.2f}",
                clock(left / speed) if speed else "",
            )
        if len(shown) > MAX_ROWS:
            table.add_row(f"and {len(shown) - MAX_ROWS} more", "", "", "", "")
        return table

    def _summary(self, running: set[str], finished: set[str], failed: dict[str, str]) -> str:
        waiting = len(self._trials) - len(running) - len(finished) - len(failed)
        parts = [f"{len(finished)} of {len(self._trials)} trials finished, {len(running)} running, {waiting} waiting"]
        if failed:
            parts.append(f"{len(failed)} failed")
        speeds = [self._followers[name].last.get("charts/frames_per_second", 0.0) for name in running]
        left = sum(
            trial.config.run.frames - self._followers[trial.name].last.get("frame", 0)
            for trial in self._trials
            if trial.name not in finished and trial.name not in failed
        )
        if speed := sum(speeds):
            parts.append(f"{speed:,.0f} frames/s, {clock(left / speed)} left")
        return "; ".join(parts)


def clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
