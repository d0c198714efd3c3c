"""Metrics: the same scalars to TensorBoard and to metrics.jsonl, over environment frames."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from envs.stream import Episode

WINDOW = 100
"""Games over which returns are averaged."""


class Means:
    """Means of named numbers since the last look; NaN (a quantity that a batch could not give) does not count."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)

    def add(self, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            if not math.isnan(value):
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
        for name, (total, count) in state.items():
            self._sums[name], self._counts[name] = float(total), int(count)


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
        self.games = int(state["games"])
        self.best = -math.inf if state["best"] is None else float(state["best"])
        self._scores = deque(map(float, state["scores"]), maxlen=WINDOW)
        self._steps = deque(map(int, state["steps"]), maxlen=WINDOW)


class MetricsWriter:
    """Appends to a run's metrics; what an interrupted run wrote after the frame it resumes from is dropped."""

    def __init__(self, run_dir: Path, from_frame: int = 0):
        self._path = run_dir / "metrics.jsonl"
        if from_frame:
            keep_until(self._path, from_frame)
        self._file: TextIO = self._path.open("a", encoding="utf-8")
        # TensorBoard counts an event at the purge step itself as written by the interrupted run.
        purge = from_frame + 1 if from_frame else None
        self._board = SummaryWriter(str(run_dir), purge_step=purge, flush_secs=10)

    def write(self, frame: int, scalars: dict[str, float]) -> None:
        self._file.write(json.dumps({"frame": frame} | {k: v for k, v in scalars.items() if math.isfinite(v)}) + "\n")
        self._file.flush()
        for name, value in scalars.items():
            self._board.add_scalar(name, value, frame)

    def histograms(self, frame: int, values: dict[str, Tensor]) -> None:
        for name, tensor in values.items():
            self._board.add_histogram(name, tensor, frame)

    def pictures(self, frame: int, images: dict[str, np.ndarray]) -> None:
        """Images [H, W, 3] uint8."""
        for name, image in images.items():
            self._board.add_image(name, image, frame, dataformats="HWC")

    def text(self, name: str, markdown: str, frame: int) -> None:
        self._board.add_text(name, markdown, frame)

    def close(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        self._board.close()


def keep_until(path: Path, frame: int) -> None:
    """Cuts metrics.jsonl after its last whole line of at most `frame`."""
    if not path.exists():
        return
    end = 0
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line)
                if not line.endswith(b"\n") or record["frame"] > frame:
                    break
            except (ValueError, KeyError, TypeError):
                break
            end += len(line)
    with path.open("r+b") as file:
        file.truncate(end)
