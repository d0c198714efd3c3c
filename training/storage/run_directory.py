"""A run directory: the unit that every command reads and `train` writes."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from configs.errors import RunError
from configs.installation import commit, hindcast_version
from configs.migration import FORMAT, recorded_config
from configs.train import TrainConfig
from training.storage.checkpoint import CheckpointDirectory
from training.storage.files import explain, is_unfinished, parse_json, read_bounded, write_atomically

PACKAGES = ("torch", "ray", "gymnasium", "ale-py", "numpy", "tensorboard")
MAX_CONFIG_BYTES = 1 << 20
MAX_RESUMPTIONS = 500
"""Most resumptions recorded in config.json; older ones are dropped."""
LOCK = ".lock"
ENTRIES = ("config.json", "metrics.jsonl", "checkpoints", "videos", "result.json", "evaluation.json", LOCK)
"""What is read or written in a run directory, beside TensorBoard's files."""


@contextmanager
def looking_into(path: Path) -> Iterator[None]:
    """Turn an OSError about `path` (no permission, name too long) into a RunError."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot look into {path}: {explain(error)}") from None


def check_no_file(path: Path) -> None:
    """Raises RunError where a file is in the place of a directory or of one above it."""
    existing = next((place for place in (path, *path.parents) if place.exists()), path)
    if existing.exists() and not existing.is_dir():
        raise RunError(f"{existing} is a file, not a directory")


class RunDirectory:
    def __init__(self, path: Path):
        self.path = path
        self.config_path = path / "config.json"
        self.metrics_path = path / "metrics.jsonl"
        self.checkpoint_path = path / "checkpoints"
        self.result_path = path / "result.json"

    @staticmethod
    def unused(path: Path) -> RunDirectory:
        """A directory for a new run, not made yet; one that holds anything is refused."""
        run = RunDirectory(path)
        with looking_into(path):
            check_no_file(path)
            if run.config_path.exists():
                raise RunError(f"{run.path} already holds a run; continue it with --resume or choose another --run-dir")
            if path.is_dir() and not all(entry.name == LOCK or is_unfinished(entry) for entry in path.iterdir()):
                raise RunError(f"{run.path} is not empty and not a run; choose another --run-dir")
        return run

    @staticmethod
    def open(path: Path) -> RunDirectory:
        run = RunDirectory(path)
        with looking_into(path):
            check_no_file(path)
            if not run.config_path.is_file():
                raise RunError(f"{path} holds no run (it has no config.json)")
            for name in ENTRIES:
                if (path / name).is_symlink():
                    raise RunError(f"{path / name} is a link; a run keeps its files in its own directory")
        return run

    @property
    def never_began(self) -> bool:
        """Whether the process that made this directory ended before it had saved or logged anything."""
        return not self.checkpoints(keep=1).list() and not (self.metrics_path.exists() and self.metrics_path.stat().st_size)

    def read_config(self) -> TrainConfig:
        return self._read_config()[0]

    def _read_config(self) -> tuple[TrainConfig, dict[str, Any]]:
        """The config, and the whole record that it stands in."""
        try:
            record = parse_json(read_bounded(self.config_path, MAX_CONFIG_BYTES))
            return recorded_config(record, str(self.config_path)), record
        except RunError:
            raise
        except OSError as error:
            raise RunError(f"cannot read {self.config_path}: {explain(error)}") from None
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RunError(f"{self.config_path} is damaged: {error}") from None

    def write_config(self, config: TrainConfig) -> None:
        self.write_json(self.config_path, {"format": FORMAT, "config": config.to_dict(), **provenance()})

    def add_resumption(self, config: TrainConfig, frame: int) -> None:
        """Record the settings and the provenance of a resumed run; those of its start are kept."""
        _, record = self._read_config()
        earlier = record.get("resumed")
        resumed = [*(earlier if isinstance(earlier, list) else []), {"frame": frame, **provenance()}][-MAX_RESUMPTIONS:]
        self.write_json(self.config_path, record | {"format": FORMAT, "config": config.to_dict(), "resumed": resumed})

    def checkpoints(self, keep: int) -> CheckpointDirectory:
        return CheckpointDirectory(self.checkpoint_path, keep)

    @staticmethod
    def write_json(path: Path, value: dict[str, Any]) -> None:
        try:
            write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())
        except OSError as error:
            raise RunError(f"cannot write {path}: {explain(error)}") from None


def provenance() -> dict[str, Any]:
    """Commit, package versions and machine, recorded with every result."""
    return {
        "commit": commit(),
        "versions": {"hindcast": hindcast_version(), "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        "machine": {"system": platform.platform(), "cpu": _cpu_name(), "cores": os.cpu_count()},
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
