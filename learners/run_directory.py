"""A run directory: the unit that every command reads and `train` writes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.train import TrainConfig
from learners.checkpoint import CheckpointDirectory, write_atomically

PACKAGES = ("torch", "ray", "gymnasium", "ale-py", "numpy", "tensorboard")
MAX_CONFIG_BYTES = 1 << 20


class RunError(ValueError):
    """A run directory that cannot be used as asked; the message says why."""


class RunDirectory:
    def __init__(self, path: Path):
        self.path = path
        self.config_path = path / "config.json"
        self.checkpoint_path = path / "checkpoints"
        self.result_path = path / "result.json"

    @staticmethod
    def unused(path: Path) -> RunDirectory:
        """A directory for a new run, not made yet; one that holds anything is refused."""
        run = RunDirectory(path)
        if run.config_path.exists():
            raise RunError(f"{run.path} already holds a run; continue it with --resume or choose another --run-dir")
        if run.path.is_dir() and any(run.path.iterdir()):
            raise RunError(f"{run.path} is not empty and not a run; choose another --run-dir")
        return run

    @staticmethod
    def open(path: Path) -> RunDirectory:
        run = RunDirectory(path)
        if not run.config_path.is_file():
            raise RunError(f"{path} holds no run (it has no config.json)")
        return run

    def read_config(self) -> TrainConfig:
        try:
            if self.config_path.stat().st_size > MAX_CONFIG_BYTES:
                raise RunError(f"{self.config_path} is too large to be a config")
            record = json.loads(self.config_path.read_text(encoding="utf-8"))
            return TrainConfig.from_dict(record["config"])
        except (OSError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError, ConfigError) as error:
            raise RunError(f"{self.config_path} is damaged: {error}") from None

    def write_config(self, config: TrainConfig) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_json(self.config_path, {"config": config.to_dict(), **provenance()})
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror}") from None

    def checkpoints(self, keep: int) -> CheckpointDirectory:
        return CheckpointDirectory(self.checkpoint_path, keep)

    @staticmethod
    def write_json(path: Path, value: dict[str, Any]) -> None:
        write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def provenance() -> dict[str, Any]:
    """What it takes to know where a number came from: the commit, the versions, the machine."""
    return {
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "machine": {"system": platform.platform(), "cpu": _cpu_name(), "cores": os.cpu_count()},
    }


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
