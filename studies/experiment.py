"""Independent runs of one experiment: spread over the cores, each saved when it is done, continued after an interruption."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from actors.pool import StopRequested
from actors.resources import available_cores
from learners.checkpoint import write_atomically
from learners.run_directory import RunError, provenance
from studies.progress import Progress

Settings = dict[str, Any]
Work = Callable[[Settings, Sequence[int]], list[dict[str, Any]]]
"""From the settings and the numbers of some runs to the data of each."""


class Experiment:
    """The directory of an experiment: settings.json, runs/NUMBER.json, and what is made of them at the end."""

    def __init__(self, out: Path, settings: Settings):
        self.out = out
        self.settings = settings
        self._runs = out / "runs"
        recorded = out / "settings.json"
        try:
            if recorded.exists() and json.loads(recorded.read_text())["settings"] != settings:
                raise RunError(f"{out} holds results of other settings; choose another --out")
            self._runs.mkdir(parents=True, exist_ok=True)
            if not recorded.exists():
                self.write_json("settings.json", {"settings": settings, **provenance()})
        except (OSError, ValueError, KeyError) as error:
            if isinstance(error, RunError):
                raise
            raise RunError(f"cannot use {out}: {error}") from None

    def collect(self, runs: int, chunk: int, work: Work, label: str, stop: threading.Event) -> list[dict[str, Any]]:
        """The data of runs 0 to `runs` - 1; those that are missing are made, `chunk` of them at a time in each process."""
        data = {number: found for number in range(runs) if (found := self._read(number)) is not None}
        missing = [number for number in range(runs) if number not in data]
        progress = Progress(label, runs, runs - len(missing), unit="runs")
        chunks = [missing[i : i + chunk] for i in range(0, len(missing), chunk)]
        workers = max(1, min(available_cores(), len(chunks)))
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        try:
            pending = {pool.submit(work, self.settings, numbers): numbers for numbers in chunks}
            while pending:
                done, _ = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                if stop.is_set():
                    raise StopRequested
                for future in done:
                    for number, made in zip(pending.pop(future), future.result(), strict=True):
                        write_atomically(self._path(number), json.dumps(made).encode())
                        data[number] = made
                progress.update(runs - sum(map(len, pending.values())))
        finally:
            progress.close()
            for process in list((pool._processes or {}).values()) if stop.is_set() else []:
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
        return [data[number] for number in range(runs)]

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        write_atomically(self.out / name, (json.dumps(value, indent=1) + "\n").encode())

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.out / name, text.encode())

    def _path(self, number: int) -> Path:
        return self._runs / f"{number:03d}.json"

    def _read(self, number: int) -> dict[str, Any] | None:
        """None if the run is still to be made, or was damaged and is to be made again."""
        try:
            return json.loads(self._path(number).read_text())
        except (FileNotFoundError, ValueError):
            return None


def run_generator(seed: int, number: int) -> np.random.Generator:
    """The generator of one run: a function of its number, not of what runs beside it."""
    return np.random.default_rng([seed, number])


def mean_and_error(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis."""
    return samples.mean(0), samples.std(0, ddof=1) / np.sqrt(len(samples))
