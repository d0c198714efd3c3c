"""Runs of an experiment on disk: a new run is a file runs/NUMBER.json; `pack` moves all of them into runs.jsonl.gz.

No run is lost, whenever the process is killed: a file is removed only after the archive that contains its run is in place.
The bytes of the archive depend on the runs alone: lines are sorted by number and the timestamp is 0.
"""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from configs.errors import RunError
from training.storage.files import explain, parse_json, read_bounded, remove_unfinished, write_atomically

MAX_FILE_BYTES = 1 << 26
MAX_UNPACKED_BYTES = 1 << 29
GZIP = 16 + zlib.MAX_WBITS

Runs = dict[int, dict[str, Any]]
"""Data of runs by number."""


class RunStore:
    def __init__(self, out: Path):
        self._archive = out / "runs.jsonl.gz"
        self._directory = out / "runs"

    def read(self) -> Runs:
        """All runs of the archive and of single files, without damaged files; raises RunError if the archive is damaged."""
        return self._read_files() | self._read_archive()

    def write(self, number: int, data: dict[str, Any]) -> None:
        """Write one run to a file of its own."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot write to {self._directory}: {explain(error)}; the same command continues") from None
        write_file(self._path(number), json.dumps(data).encode())

    def pack(self) -> None:
        """Move the runs of single files into the archive; damaged files stay."""
        files = self._read_files()
        if files:
            archived = self._read_archive()
            if not files.keys() <= archived.keys():
                write_file(self._archive, _packed(files | archived))
        try:
            for number in files:
                self._path(number).unlink()
            if self._directory.is_dir():
                remove_unfinished(self._directory)
        except OSError as error:
            raise RunError(f"cannot clear {self._directory}: {explain(error)}") from None
        with suppress(OSError):  # It is not there, or holds other files.
            self._directory.rmdir()

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:03d}.json"

    def _read_files(self) -> Runs:
        if not self._directory.exists():
            return {}
        try:
            paths = {int(path.stem): path for path in self._directory.glob("*.json") if path.stem.isdecimal()}
            ours = {number: path for number, path in paths.items() if path == self._path(number)}
            found = {number: _parsed(read_bounded(path, MAX_FILE_BYTES)) for number, path in ours.items()}
        except OSError as error:
            raise RunError(f"cannot read {self._directory}: {explain(error)}") from None
        return {number: data for number, data in found.items() if data is not None}

    def _read_archive(self) -> Runs:
        try:
            return _unpacked(read_bounded(self._archive, MAX_FILE_BYTES))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise RunError(f"cannot read {self._archive}: {explain(error)}") from None
        except (ValueError, TypeError, KeyError, zlib.error) as error:
            raise RunError(f"{self._archive} is damaged ({error}); restore it, or remove it to make its runs again") from None


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically; raises RunError if that fails."""
    try:
        write_atomically(path, data)
    except OSError as error:
        raise RunError(f"cannot write {path}: {explain(error)}; the same command continues") from None


def _parsed(text: bytes) -> dict[str, Any] | None:
    """The data of a run, or None if the text is damaged."""
    try:
        data = parse_json(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _packed(runs: Runs) -> bytes:
    lines = (json.dumps({"run": number, "data": data}) + "\n" for number, data in sorted(runs.items()))
    return gzip.compress("".join(lines).encode(), mtime=0)


def _unpacked(archive: bytes) -> Runs:
    """The runs of an archive; raises ValueError, TypeError, KeyError or zlib.error if it is damaged."""
    decompressor = zlib.decompressobj(GZIP)
    text = decompressor.decompress(archive, MAX_UNPACKED_BYTES)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("it is not one complete gzip stream")
    runs: Runs = {}
    for line in text.splitlines():
        record = parse_json(line)
        number, data = record["run"], record["data"]
        if type(number) is not int or not isinstance(data, dict) or number in runs:
            raise ValueError("a line is not a run")
        runs[number] = data
    return runs
