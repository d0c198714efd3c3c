"""Checkpoints: complete or absent, and nothing in them is ever executed.

A checkpoint is one safetensors file: tensors, and in its header a JSON text with everything else. It is written under a
temporary name, flushed to the disk and renamed, so a file with a checkpoint's name is a whole one.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

log = logging.getLogger(__name__)

FORMAT = "hindcast-checkpoint-1"
BEST = "best.safetensors"
PATTERN = "frame_*.safetensors"


class CheckpointError(ValueError):
    """A file that is not a usable checkpoint; the message says why."""


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and plain JSON values."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix.`, under the rest of their names."""
        return {name.removeprefix(prefix + "."): t for name, t in self.tensors.items() if name.startswith(prefix + ".")}


def read_checkpoint(path: Path) -> Checkpoint:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(f"{path} is not a Hindcast checkpoint")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Checkpoint(tensors, json.loads(metadata["values"]))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is damaged: {error}") from None


def write_atomically(path: Path, data: bytes) -> None:
    """The file holds `data` whole, or is as it was, whatever happens meanwhile."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    tensors = {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
    write_atomically(path, save(tensors, {"format": FORMAT, "values": json.dumps(checkpoint.values)}))


class CheckpointDirectory:
    """The newest `keep` checkpoints of a run, and the one with the best score."""

    def __init__(self, path: Path, keep: int):
        self._path = path
        self._keep = keep

    def save(self, checkpoint: Checkpoint, frame: int, is_best: bool) -> Path:
        self._path.mkdir(exist_ok=True)
        path = self._path / f"frame_{frame:012d}.safetensors"
        write_checkpoint(path, checkpoint)
        if is_best:
            link = self._path / f".{BEST}.{os.getpid()}.tmp"
            link.unlink(missing_ok=True)
            os.link(path, link)
            link.replace(self._path / BEST)
        for old in self.list()[self._keep :]:
            old.unlink(missing_ok=True)
        return path

    def list(self) -> list[Path]:
        """Newest first, without the best."""
        return sorted(self._path.glob(PATTERN), reverse=True)

    def newest(self) -> Checkpoint:
        """The newest one that can be read; older ones step in for damaged ones, with a warning."""
        damaged = []
        for path in self.list():
            try:
                checkpoint = read_checkpoint(path)
            except CheckpointError as error:
                damaged.append(str(error))
                continue
            for message in damaged:
                log.warning("%s; using %s instead", message, path.name)
            return checkpoint
        raise CheckpointError(damaged[0] if damaged else f"{self._path} holds no checkpoint to continue from")

    def best(self) -> Checkpoint:
        return read_checkpoint(self._path / BEST)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
