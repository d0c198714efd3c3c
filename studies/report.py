"""`launch.py report`: from directories of trials to a page, its pictures and its numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from configs.errors import ConfigError
from configs.report import ReportConfig
from configs.train import TaskName
from learners.checkpoint import write_atomically
from learners.run_directory import RunError
from studies.report_numbers import Numbers, as_json, compute, rounded, trial_row
from studies.report_page import page, summary_lines
from studies.report_pictures import draw_all
from studies.trial_records import Collection, collect


def make_report(config: ReportConfig) -> tuple[Path, list[str]]:
    """Writes report.html, report_*.png, report.json and report_*.csv; returns the page's path and its summary."""
    directories = [Path(directory) for directory in config.directories]
    collection = collect(directories)
    if config.task is not None and all(trial.task != config.task for trial in collection.trials):
        raise ConfigError(f"--task {config.task} has no trial here")
    numbers = compute(collection, config.task, get_args(TaskName))
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
    return out / "report.html", summary_lines(numbers)


def _score_rows(numbers: Numbers) -> Iterable[dict[str, Any]]:
    for cell in numbers.cells:
        row: dict[str, Any] = {"game": cell.game, "task": cell.task, "finished": cell.finished}
        for name, estimate in (("score", cell.score), ("area", cell.area)):
            row |= {f"{name}_{part}": getattr(estimate, part) if estimate else None for part in ("value", "low", "high")}
        yield rounded(row | {"minutes": cell.minutes, "frames_per_second": cell.frames_per_second})


def _curve_rows(collection: Collection) -> Iterable[dict[str, Any]]:
    for trial in collection.trials:
        for frame, score in zip(*trial.curve, strict=True):
            row = {"game": trial.game, "task": trial.task, "seed": trial.seed}
            yield row | {"frame": int(frame), "return": rounded(float(score))}


def _table(rows: Iterable[dict[str, Any]]) -> bytes:
    rows = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
