"""Independent runs of one experiment: spread over the cores, each saved when it is done, continued after an interruption."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from actors.resources import available_cores
from configs.errors import PoolError, RunError, StopRequested
from training.files import explain, parse_json, read_bounded, write_atomically
from training.progress import Progress
from training.run_directory import provenance
from training.run_lock import locked

Settings = dict[str, Any]
Work = Callable[..., list[dict[str, Any]]]
"""From the settings, the numbers of some runs and whatever else is given to the data of each."""


PAPER_RUNS = 30
MAX_BYTES = 1 << 26
"""Of a file that is read again."""
POLL_SECONDS = 0.2
MAX_RETRIES = 3
"""How often the runs of a worker that died are tried again."""


class Experiment:
    """The directory of an experiment: settings.json, runs/NUMBER.json, and what is made of them at the end."""

    def __init__(self, out: Path, settings: Settings, ray_address: str = ""):
        self.out = out
        self.settings = settings
        self._ray_address = ray_address
        self._runs = out / "runs"
        recorded = out / "settings.json"
        try:
            is_new = not recorded.exists()
            found = settings if is_new else parse_json(read_bounded(recorded, MAX_BYTES))["settings"]
            self._runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot use {out}: {explain(error)}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"cannot use {out}: settings.json is damaged: {error!r}") from None
        if found != settings:
            raise RunError(f"{out} holds results of other settings; choose another --out")
        if is_new:
            self.write_json("settings.json", {"settings": settings, **provenance()})

    def collect(
        self, runs: int, chunk: int, work: Work, label: str, stop: threading.Event, *given: Any
    ) -> list[dict[str, Any]]:
        """The data of runs 0 to `runs` - 1; those that are missing are made, `chunk` of them at a time in each worker."""
        with locked(self.out):
            return self._collect(runs, chunk, work, label, stop, given)

    def _collect(
        self, runs: int, chunk: int, work: Work, label: str, stop: threading.Event, given: Sequence[Any]
    ) -> list[dict[str, Any]]:
        data = {number: found for number in range(runs) if (found := self._read(number)) is not None}
        missing = [number for number in range(runs) if number not in data]
        if stop.is_set():
            raise StopRequested
        progress = Progress(label, runs, runs - len(missing), unit="run", window=math.inf)
        try:
            chunks = [missing[i : i + chunk] for i in range(0, len(missing), chunk)]
            for number, made in self._make(chunks, work, stop, given):
                self._write(self._path(number), json.dumps(made))
                data[number] = made
                progress.update(len(data))
        finally:
            progress.close()
        return [data[number] for number in range(runs)]

    def _make(
        self, chunks: list[list[int]], work: Work, stop: threading.Event, given: Sequence[Any]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Numbers and data of runs as they are done.

        A worker that dies is replaced and its runs are made again; runs that fail are named when all others are done.
        """
        if not chunks:
            return
        import ray  # Takes seconds, which a finished experiment does without.
        from ray.exceptions import RayError

        from actors.cluster import error_cause, start_ray, stop_ray

        start_ray(self._ray_address, min(available_cores(), len(chunks)))
        try:
            remote: Any = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(work)
            shared = [ray.put(value) for value in given]
            pending = {remote.remote(self.settings, numbers, *shared): numbers for numbers in chunks}
            failures: list[str] = []
            while pending:
                done, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
                if stop.is_set():
                    raise StopRequested
                for reference in done:
                    numbers = pending.pop(reference)
                    try:
                        yield from zip(numbers, ray.get(reference), strict=True)
                    except RayError as error:
                        failures.append(f"runs {numbers[0]} to {numbers[-1]} failed: {error_cause(error)}")
        finally:
            stop_ray()
        if failures:
            raise PoolError("; ".join(failures))

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        self._write(self.out / name, json.dumps(value, indent=1) + "\n")

    def write_text(self, name: str, text: str) -> None:
        self._write(self.out / name, text)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        try:
            write_atomically(path, text.encode())
        except OSError as error:
            raise RunError(f"cannot write {path}: {explain(error)}; the same command continues") from None

    def _path(self, number: int) -> Path:
        return self._runs / f"{number:03d}.json"

    def _read(self, number: int) -> dict[str, Any] | None:
        """None if the run is still to be made, or was damaged and is to be made again."""
        path = self._path(number)
        try:
            found = parse_json(read_bounded(path, MAX_BYTES))
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise RunError(f"cannot read {path}: {explain(error)}") from None
        return found if isinstance(found, dict) else None


def run_generator(seed: int, number: int) -> np.random.Generator:
    """The generator of one run: a function of its number, not of what runs beside it."""
    return np.random.default_rng([seed, number])


def mean_and_error(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis."""
    return samples.mean(0), samples.std(0, ddof=1) / np.sqrt(len(samples))
