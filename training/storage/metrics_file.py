"""Read metrics.jsonl, which may be damaged or unfinished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.storage.files import parse_json

MAX_LINE_BYTES = 1 << 20
MAX_LINES = 1_000_000
MAX_FRAMES = 2**53
"""Integers up to this are exact in a float."""


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Lines in the order of their frames, and how many were damaged. An unfinished last line is not damage."""
    lines: list[dict[str, Any]] = []
    damaged = 0
    if not path.is_file():
        return lines, damaged
    with path.open("rb") as file:
        for _ in range(MAX_LINES):
            text = file.readline(MAX_LINE_BYTES)
            if not text.endswith(b"\n"):
                damaged += len(text) == MAX_LINE_BYTES
                break
            try:
                line = parse_json(text)
                frame = line["frame"]
            except (ValueError, TypeError, KeyError):
                damaged += 1
                continue
            if type(frame) is not int or not (lines[-1]["frame"] if lines else -1) < frame <= MAX_FRAMES:
                damaged += 1
            else:
                lines.append(line)
    return lines, damaged
