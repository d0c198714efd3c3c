"""Metrics: the same scalars to TensorBoard and to metrics.jsonl, over environment frames."""

from __future__ import annotations

import json
import logging
import math
import os
from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from envs.stream import Episode
from training.storage.files import explain, parse_json, read_bounded, write_atomically
from training.tensorboard import OVERVIEW, Layout

log = logging.getLogger(__name__)

WINDOW = 100
"""Games over which returns are averaged."""
MAX_METRICS_BYTES = 1 << 30


class Means:
    """Means of named numbers since the last `take`, and maxima of those named `_max`; NaN values are skipped."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)

    def add(self, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            if math.isnan(value):
                continue
            if name.endswith("_max"):
                self._sums[name], self._counts[name] = max(self._sums.get(name, value), value), 1
            else:
                self._sums[name] += value
                self._counts[name] += 1

    def take(self) -> dict[str, float]:
        means = {name: self._sums[name] / self._counts[name] for name in self._sums}
        self._sums.clear()
        self._counts.clear()
        return means

    def state_dict(self) -> dict[str, Any]:
        return {name: [self._sums[name], self._counts[name]] for name in self._sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError for what is no sum of numbers and their count."""
        for name, (total, count) in state.items():
            self._sums[name], self._counts[name] = float(total), int(count)
            if self._counts[name] < 1 or math.isnan(self._sums[name]):
                raise ValueError(f"the mean of {name!r} cannot be {total} / {count}")


class EpisodeStatistics:
    """Scores and lengths of the last games, and the best mean score so far."""

    def __init__(self) -> None:
        self.games = 0
        self.best = -math.inf
        self._scores: deque[float] = deque(maxlen=WINDOW)
        self._steps: deque[int] = deque(maxlen=WINDOW)

    def add(self, episodes: Iterable[Episode]) -> None:
        for episode in episodes:
            self.games += 1
            self._scores.append(episode.score)
            self._steps.append(episode.steps)

    @property
    def mean_score(self) -> float:
        return sum(self._scores) / len(self._scores) if self._scores else math.nan

    def improved(self) -> bool:
        """Whether the mean score is the best so far; a better one replaces it."""
        if len(self._scores) < WINDOW or self.mean_score <= self.best:
            return False
        self.best = self.mean_score
        return True

    def metrics(self, frames_per_step: int) -> dict[str, float]:
        if not self._scores:
            return {"charts/games": 0}
        return {
            "charts/games": self.games,
            "charts/episode_return": self.mean_score,
            "charts/episode_return_min": min(self._scores),
            "charts/episode_return_max": max(self._scores),
            "charts/episode_length": frames_per_step * sum(self._steps) / len(self._steps),
        }

    def state_dict(self) -> dict[str, Any]:
        best = None if math.isinf(self.best) else self.best
        return {"games": self.games, "best": best, "scores": list(self._scores), "steps": list(self._steps)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError for statistics that no games can have."""
        self.games = int(state["games"])
        self.best = -math.inf if state["best"] is None else float(state["best"])
        self._scores = deque(map(float, state["scores"]), maxlen=WINDOW)
        self._steps = deque(map(int, state["steps"]), maxlen=WINDOW)
        numbers = (*self._scores, 0.0 if state["best"] is None else self.best)
        if len(self._scores) != len(self._steps) or self.games < len(self._scores) or not all(map(math.isfinite, numbers)):
            raise ValueError("the statistics are not of games that were played")


class MetricsWriter:
    """Appends to a run's metrics; what an interrupted run wrote after the frame it resumes from is dropped.

    A disk that refuses does not stop training: lines wait in memory until there is room. TensorBoard's events do not, so
    its curves may have a gap where metrics.jsonl has none.
    """

    def __init__(self, run_dir: Path, from_frame: int = 0):
        self._run_dir = run_dir
        path = run_dir / "metrics.jsonl"
        keep_until(path, from_frame)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        self._end = os.fstat(self._descriptor).st_size
        self._waiting = b""
        # TensorBoard counts an event at the purge step itself as written by the interrupted run.
        self._board: SummaryWriter | None = self._open_board(purge_step=from_frame + 1)

    def write(self, frame: int, scalars: dict[str, float]) -> None:
        record = {"frame": frame} | {name: value for name, value in scalars.items() if math.isfinite(value)}
        self._waiting += json.dumps(record).encode() + b"\n"
        try:
            self._append()
        except OSError as error:
            log.warning("metrics cannot be written and wait in memory: %s", explain(error))
        overview = {tag: scalars[name] for name, tag in OVERVIEW.items() if name in scalars}
        self._show("add_scalar", *((tag, value, frame) for tag, value in (scalars | overview).items()))

    def histograms(self, frame: int, values: dict[str, Tensor]) -> None:
        self._show("add_histogram", *((name, tensor, frame) for name, tensor in values.items()))

    def pictures(self, frame: int, images: dict[str, np.ndarray]) -> None:
        """Images [H, W, 3] uint8."""
        self._show("add_image", *((name, image, frame, None, "HWC") for name, image in images.items()))

    def charts(self, layout: Layout) -> None:
        """Charts for CUSTOM SCALARS."""
        self._show("add_custom_scalars", (layout,))

    def text(self, name: str, markdown: str, frame: int) -> None:
        self._show("add_text", (name, markdown, frame))

    def sync(self) -> None:
        """Flush everything to disk; raises OSError on failure.

        Called before a checkpoint is saved, so that no resumed run continues after lines that were never written.
        """
        self._append()
        os.fsync(self._descriptor)
        self._show("flush", ())

    def close(self) -> None:
        try:
            self.sync()
        except OSError as error:
            log.warning("the last metrics are lost: %s", explain(error))
        os.close(self._descriptor)
        self._close_board()

    def _append(self) -> None:
        """Completes a partial line that an earlier attempt left on a full disk."""
        while self._waiting:
            written = os.pwrite(self._descriptor, self._waiting, self._end)
            self._waiting = self._waiting[written:]
            self._end += written

    def _show(self, method: str, *calls: tuple[Any, ...]) -> None:
        """Calls TensorBoard's writer once with each tuple of arguments; a writer that has failed is replaced."""
        try:
            if self._board is None:
                self._board = self._open_board()
            for arguments in calls:
                getattr(self._board, method)(*arguments)
        except OSError as error:
            log.warning("TensorBoard's file cannot be written: %s", explain(error))
            self._close_board()

    def _open_board(self, purge_step: int | None = None) -> SummaryWriter:
        return SummaryWriter(str(self._run_dir), purge_step=purge_step, flush_secs=10)

    def _close_board(self) -> None:
        board, self._board = self._board, None
        if board is not None:
            with suppress(OSError):
                board.close()


def keep_until(path: Path, frame: int) -> None:
    """Leaves in metrics.jsonl its whole lines, in order, of at most `frame`; says so if any before that are damaged."""
    if not path.exists():
        return
    kept: list[bytes] = []
    last, damaged, later = -1, 0, 0
    for line in read_bounded(path, MAX_METRICS_BYTES).splitlines(keepends=True):
        found = _frame_of(line)
        if found is not None and last < found <= frame:
            kept.append(line)
            last = found
            # What seemed to come after `frame` did not, as this line follows it.
            damaged, later = damaged + later, 0
        elif later or (found is not None and found > frame):
            later += 1
        else:
            damaged += 1
    if damaged:
        log.warning("%s: %d damaged lines are dropped", path, damaged)
    write_atomically(path, b"".join(kept))


def _frame_of(line: bytes) -> int | None:
    try:
        found = parse_json(line)["frame"] if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None
    return found if type(found) is int else None
