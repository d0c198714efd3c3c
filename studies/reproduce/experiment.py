"""Independent runs of one experiment: made in parallel on Ray, saved one by one, continued after an interruption."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from actors.resources import available_cores
from configs.errors import ConfigError, PoolError, RunError, StopRequested
from configs.migration import FORMAT, format_of, migrate
from studies.reproduce.run_store import MAX_FILE_BYTES, RunStore, write_file
from training.progress import Progress
from training.storage.files import explain, parse_json, read_bounded
from training.storage.run_directory import provenance
from training.storage.run_lock import locked

Settings = dict[str, Any]
Work = Callable[..., list[dict[str, Any]]]
"""Maps the settings, the numbers of some runs and further arguments to the data of each run."""


PAPER_RUNS = 30
POLL_SECONDS = 0.2
MAX_RETRIES = 3
"""How often the runs of a worker that died are tried again."""


class Experiment:
    """The directory of an experiment: settings.json, its runs (see RunStore), and the results computed from them."""

    def __init__(self, out: Path, settings: Settings, ray_address: str = ""):
        self.out = out
        self.settings = settings
        self._ray_address = ray_address
        self._store = RunStore(out)
        recorded = out / "settings.json"
        try:
            is_new = not recorded.exists()
            found = settings if is_new else self._recorded(recorded)
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot use {out}: {explain(error)}") from None
        except RunError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"cannot use {out}: settings.json is damaged: {error!r}") from None
        if found != settings:
            raise RunError(f"{out} holds results of other settings; choose another --out")
        if is_new:
            self.write_json("settings.json", {"format": FORMAT, "settings": settings, **provenance()})

    @staticmethod
    def _recorded(path: Path) -> Settings:
        record = parse_json(read_bounded(path, MAX_FILE_BYTES))
        return migrate(record["settings"], format_of(record, str(path)))

    def collect(
        self, runs: int, chunk: int, work: Work, label: str, stop: threading.Event, *arguments: Any
    ) -> list[dict[str, Any]]:
        """The data of runs 0 to `runs` - 1; missing runs are made, `chunk` of them in each Ray task."""
        with locked(self.out):
            data = self._store.read()
            try:
                self._make_missing(data, runs, chunk, work, label, stop, arguments)
            finally:
                self._store.pack()
        return [data[number] for number in range(runs)]

    def _make_missing(
        self,
        data: dict[int, dict[str, Any]],
        runs: int,
        chunk: int,
        work: Work,
        label: str,
        stop: threading.Event,
        arguments: Sequence[Any],
    ) -> None:
        """Add the runs that `data` lacks to it and to the store."""
        missing = [number for number in range(runs) if number not in data]
        if stop.is_set():
            raise StopRequested
        first = runs - len(missing)
        progress = Progress(label, runs, first, unit="run", window=math.inf)
        try:
            chunks = [missing[i : i + chunk] for i in range(0, len(missing), chunk)]
            for done, (number, made) in enumerate(self._make(chunks, work, stop, arguments), start=first + 1):
                self._store.write(number, made)
                data[number] = made
                progress.update(done)
        finally:
            progress.close()

    def _make(
        self, chunks: list[list[int]], work: Work, stop: threading.Event, arguments: Sequence[Any]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Numbers and data of runs as they are done.

        Ray retries the runs of a worker that dies; runs that fail are reported after all others are done.
        """
        if not chunks:
            return
        import ray  # Takes seconds, and a finished experiment does not need it.
        from ray.exceptions import RayError

        from actors import ray_log
        from actors.cluster import error_cause, start_ray, stop_ray

        start_ray(self._ray_address, min(available_cores(), len(chunks)))
        ray_log.keep(self.out)
        try:
            remote: Any = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(work)
            shared = [ray.put(value) for value in arguments]
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
        self.write_text(name, json.dumps(value, indent=1) + "\n")

    def write_text(self, name: str, text: str) -> None:
        write_file(self.out / name, text.encode())


def require_extra(extra: str, study: str, *modules: str) -> None:
    """Raise ConfigError unless the modules, which belong to an extra of Hindcast, are installed."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ConfigError(f"reproduce {study} needs {' and '.join(missing)}: pip install 'hindcast[{extra}]'")


def run_generator(seed: int, number: int) -> np.random.Generator:
    """The random generator of one run; it depends on the experiment's seed and the run's number alone."""
    return np.random.default_rng([seed, number])


def mean_and_error(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the first axis."""
    return samples.mean(0), samples.std(0, ddof=1) / np.sqrt(len(samples))
