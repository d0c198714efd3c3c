"""Archived trials: one small file per finished trial with its config, result and curves, and a SHA-256 digest of them.

`launch.py compare --archive` writes them as trials finish and does not train archived trials again; `launch.py report` reads
them like run directories. The last TensorBoard image of the questions of a trial can be kept beside them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import RunError
from configs.migration import FORMAT, format_of, recorded_config
from configs.train import TrainConfig
from training.storage.files import explain, parse_json, read_bounded, write_atomically
from training.storage.metrics_file import MAX_FRAMES
from training.storage.run_directory import RunDirectory

SUFFIX = ".trial.json"
MAX_BYTES = 16 << 20
KEPT = ("charts/episode_return", "charts/wall_seconds", "policy/entropy", "losses/auxiliary", "questions/", "meta/")
"""Metrics whose curves are kept: names or prefixes."""
DIGITS = 6
IMAGE = "questions"
"""Name of the TensorBoard image that can be kept."""


@dataclass(frozen=True)
class ArchivedTrial:
    record: dict[str, Any]
    """Content of config.json."""
    config: TrainConfig
    result: dict[str, Any]
    """Content of result.json."""
    lines: list[dict[str, Any]]
    """Lines of metrics.jsonl, with the archived metrics only."""


def archive_path(directory: Path, name: str) -> Path:
    return directory / f"{name}{SUFFIX}"


def archived_name(path: Path) -> str:
    return path.name.removesuffix(SUFFIX)


def write_archive(path: Path, record: dict[str, Any], result: dict[str, Any], lines: Sequence[dict[str, Any]]) -> None:
    content = {"format": FORMAT, "record": record, "result": result, "curves": _columns(lines)}
    text = json.dumps({"digest": _digest(content), **content}, separators=(",", ":")).replace('],"', '],\n"')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (text + "\n").encode())
    except OSError as error:
        raise RunError(f"cannot write {path}: {explain(error)}") from None


def write_questions_image(run: Path, path: Path) -> None:
    """Write the last image of the questions in the TensorBoard events of a run, if there is one, as a PNG file."""
    from tensorboard.backend.event_processing.event_accumulator import IMAGES, EventAccumulator

    events = EventAccumulator(str(run), size_guidance={IMAGES: 1}, purge_orphaned_data=False)
    events.Reload()
    if IMAGE in events.Tags()[IMAGES]:
        try:
            write_atomically(path, events.Images(IMAGE)[-1].encoded_image_string)
        except OSError as error:
            raise RunError(f"cannot write {path}: {explain(error)}") from None


def read_archive(path: Path) -> ArchivedTrial:
    """The archived trial in a file; raises RunError if the file is damaged or its digest does not match."""
    try:
        content = parse_json(read_bounded(path, MAX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        format_of(content, str(path))
        if content.pop("digest", None) != _digest(content):
            raise ValueError("its digest does not match its content")
        record, result = content["record"], content["result"]
        if not isinstance(result, dict):
            raise ValueError("its result is not a JSON object")
        return ArchivedTrial(record, recorded_config(record, str(path)), result, _lines(content["curves"]))
    except RunError:
        raise
    except OSError as error:
        raise RunError(f"cannot read {path}: {explain(error)}") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def restore(archived: ArchivedTrial, directory: RunDirectory) -> None:
    """Write the run directory of an archived trial, without checkpoints and with the archived metrics only.

    The config comes first and the result last: what a kill leaves behind is a trial that has begun.
    """
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
        RunDirectory.write_json(directory.config_path, archived.record)
        write_atomically(directory.metrics_path, "".join(json.dumps(line) + "\n" for line in archived.lines).encode())
        RunDirectory.write_json(directory.result_path, archived.result)
    except OSError as error:
        raise RunError(f"cannot write to {directory.path}: {explain(error)}") from None


def _columns(lines: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for line in lines for name, value in line.items() if name.startswith(KEPT) and _plain(value))
    return {"frame": [line["frame"] for line in lines]} | {
        name: [_rounded(line.get(name)) for line in lines] for name in sorted(names)
    }


def _lines(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    frames = columns["frame"]
    if any(type(frame) is not int or frame > MAX_FRAMES for frame in frames) or any(
        a >= b for a, b in zip([-1, *frames], frames, strict=False)
    ):
        raise ValueError("its frames are not in order")
    rows = zip(*columns.values(), strict=True)
    return [{name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in rows]


def _plain(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if _plain(value) else None


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
