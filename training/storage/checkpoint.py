"""Checkpoints: complete or absent, checked when read, and nothing in them is ever executed.

A checkpoint is one safetensors file: tensors, and in its header a JSON text with everything else and a SHA-256 of both. It is
written under a temporary name, flushed to the disk and renamed, so a file with a checkpoint's name is a whole one; the
digest tells whether it still is.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from configs.errors import CheckpointError
from training.storage.files import explain, parse_json, read_bounded, remove_unfinished, write_atomically

log = logging.getLogger(__name__)

FORMAT_PREFIX = "hindcast-checkpoint-"
FORMAT_NUMBER = 2
FORMAT = f"{FORMAT_PREFIX}{FORMAT_NUMBER}"
BEST = "best.safetensors"
NAME = re.compile(r"frame_(\d{12,18})\.safetensors")
MAX_BYTES = 8 << 30
MAX_HEADER_BYTES = 32 << 20
LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header."""


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
        return _parse(read_bounded(path, MAX_BYTES), path)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {explain(error)}") from None
    except (SafetensorError, AttributeError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is damaged: {error!r}") from None


def _parse(data: bytes, path: Path) -> Checkpoint:
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if length > min(MAX_HEADER_BYTES, len(data) - LENGTH_BYTES):
        raise CheckpointError(f"{path} is damaged: it has {len(data)} bytes and promises a header of {length}")
    metadata = parse_json(data[LENGTH_BYTES : LENGTH_BYTES + length]).get("__metadata__", {})
    written_as = str(metadata.get("format"))
    if (number := written_as.removeprefix(FORMAT_PREFIX)).isdecimal() and number.isascii() and int(number) > FORMAT_NUMBER:
        raise CheckpointError(f"{path} has format {number[:20]}, which a newer version wrote; this one reads {FORMAT_NUMBER}")
    if written_as != FORMAT or "sha256" not in metadata:
        raise CheckpointError(f"{path} is not a Hindcast checkpoint of this version, which carries a checksum")
    tensors, values = load(data), metadata["values"]
    if _digest(tensors, values) != metadata["sha256"]:
        raise CheckpointError(f"{path} is damaged: its checksum does not fit its content")
    return Checkpoint(tensors, parse_json(values))


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    values = json.dumps(checkpoint.values)
    write_atomically(path, save(tensors, {"format": FORMAT, "sha256": _digest(tensors, values), "values": values}))


def _digest(tensors: dict[str, Tensor], values: str) -> str:
    digest = hashlib.sha256(values.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class CheckpointDirectory:
    """The newest `keep` checkpoints of a run, and the one with the best score."""

    def __init__(self, path: Path, keep: int):
        self._path = path
        self._keep = keep

    def save(self, checkpoint: Checkpoint, frame: int, is_best: bool) -> Path:
        """Write the best checkpoint before the newest, so that a kill in between leaves a consistent pair.

        Those of later frames go: they were damaged, or the run would have continued from them, and it has left their course.
        """
        self._path.mkdir(exist_ok=True)
        remove_unfinished(self._path)
        if is_best:
            write_checkpoint(self._path / BEST, checkpoint)
        path = self._path_of(frame)
        write_checkpoint(path, checkpoint)
        others = self.list()
        place = others.index(path)
        for other in (*others[:place], *others[place + self._keep :]):
            with suppress(OSError):  # What stays behind is no reason to call the save a failure.
                other.unlink()
        return path

    def list(self) -> list[Path]:
        """Newest first, without the best."""
        paths = {path: NAME.fullmatch(path.name) for path in self._path.glob("frame_*.safetensors")}
        frames = {path: int(match[1]) for path, match in paths.items() if match}
        return sorted(frames, key=frames.__getitem__, reverse=True)

    def frames(self) -> tuple[int, ...]:
        """Frames of the checkpoints, newest first, without the best."""
        return tuple(int(path.stem.removeprefix("frame_")) for path in self.list())

    def newest(self) -> Checkpoint:
        """The newest intact checkpoint; falls back to older ones, then to the best, with a warning for each damaged file.

        A run that trains meanwhile may delete what was listed; its place was taken by a newer one.
        """
        damaged = []
        for path in (*self.list(), *self._path.glob(BEST)):
            try:
                checkpoint = read_checkpoint(path)
            except CheckpointError as error:
                if not os.path.lexists(path):
                    return self.newest()
                damaged.append(str(error))
                continue
            for message in damaged:
                log.warning("%s; using %s instead", message, path.name)
            return checkpoint
        raise CheckpointError(damaged[0] if damaged else f"{self._path} holds no checkpoint to continue from")

    def best(self) -> Checkpoint:
        return read_checkpoint(self._path / BEST)

    def of_frame(self, frame: int) -> Checkpoint:
        """The one saved at `frame`; raises CheckpointError, with the frames there are, where there is none."""
        kept = self.frames()
        if frame not in kept:
            known = f"there are those of {', '.join(map(str, kept))}" if kept else "there are none"
            raise CheckpointError(f"{self._path} holds no checkpoint of frame {frame}; {known}")
        return read_checkpoint(self._path_of(frame))

    def _path_of(self, frame: int) -> Path:
        return self._path / f"frame_{frame:012d}.safetensors"
