"""`launch.py report`: from directories of trials to a page, its pictures and its numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from configs.errors import RunError
from configs.report import ReportConfig
from studies.report.analysis import Numbers, as_json, compute, rounded, trial_row
from studies.report.figures import draw_all
from studies.report.page import page, summary_lines
from studies.report.records import Collection, collect
from training.checkpoint import write_atomically


class Report(NamedTuple):
    page: Path
    summary: list[str]
    problems: list[str]
    """What could not be read, was left out or should not be compared."""


def make_report(config: ReportConfig) -> Report:
    """Writes report.html, report_*.png, report.json and report_*.csv."""
    directories = [Path(directory) for directory in config.directories]
    collection = collect(directories)
    numbers = compute(collection, config.task)
    pictures = draw_all(numbers, collection)
    files = {
        "report.html": page(numbers, collection, pictures).encode(),
        "report.json": (json.dumps(as_json(numbers, collection), indent=1) + "\n").encode(),
        "report_trials.csv": _table(rounded(trial_row(trial)) for trial in collection.trials),
        "report_scores.csv": _table(_score_rows(numbers)),
        "report_curves.csv": _table(_curve_rows(collection)),
    }
    files |= {f"report_{name}.png": data for name, data in pictures.items()}
    out = Path(config.out) if config.out else directories[0]
    try:
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("report_*.png"):
            if old.name not in files:
                old.unlink()
        for name, data in files.items():
            write_atomically(out / name, data)
    except OSError as error:
        raise RunError(f"cannot write to {out}: {error.strerror}") from None
    return Report(out / "report.html", summary_lines(numbers), collection.problems)


def _score_rows(numbers: Numbers) -> Iterable[dict[str, Any]]:
    for cell in numbers.cells:
        row: dict[str, Any] = {"game": cell.game, "agent": cell.agent, "finished": cell.finished}
        for name, estimate in (("score", cell.score), ("area", cell.area)):
            row |= {f"{name}_{part}": getattr(estimate, part) if estimate else None for part in ("value", "low", "high")}
        yield rounded(row | {"minutes": cell.minutes, "frames_per_second": cell.frames_per_second})


def _curve_rows(collection: Collection) -> Iterable[dict[str, Any]]:
    for trial in collection.trials:
        for frame, score in zip(*trial.curve, strict=True):
            row = {"game": trial.game_label, "agent": trial.agent.label, "seed": trial.seed}
            yield row | {"frame": int(frame), "return": rounded(float(score))}


def _table(rows: Iterable[dict[str, Any]]) -> bytes:
    rows = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
