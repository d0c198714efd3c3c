"""`launch.py report`: reads directories of trials and writes the page, its figures and its numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from configs.commands import ReportConfig
from configs.errors import RunError
from studies.report.analysis import Analysis, analyse, as_json, rounded, trial_row
from studies.report.figures import draw_all
from studies.report.page import page, summary_lines
from studies.report.records import TrialRecords, collect
from training.storage.checkpoint import write_atomically


class Report(NamedTuple):
    page: Path
    summary: list[str]
    problems: list[str]
    """Trials that are unreadable, left out or not comparable."""


def make_report(config: ReportConfig) -> Report:
    """Write report.html, report_*.png, report.json and report_*.csv."""
    directories = [Path(directory) for directory in config.directories]
    records = collect(directories)
    analysis = analyse(records, config.task)
    figures = draw_all(analysis, records)
    files = {
        "report.html": page(analysis, records, figures).encode(),
        "report.json": (json.dumps(as_json(analysis, records), indent=1, allow_nan=False) + "\n").encode(),
        "report_trials.csv": _table(rounded(trial_row(trial)) for trial in records.trials),
        "report_scores.csv": _table(_score_rows(analysis)),
        "report_curves.csv": _table(_curve_rows(records)),
    }
    files |= {f"report_{name}.png": data for name, data in figures.items()}
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
    return Report(out / "report.html", summary_lines(analysis), records.problems)


def _score_rows(analysis: Analysis) -> Iterable[dict[str, Any]]:
    for cell in analysis.cells:
        row: dict[str, Any] = {"game": cell.game, "agent": cell.agent, "finished": cell.finished}
        for name, estimate in (("score", cell.score), ("area", cell.area)):
            row |= {f"{name}_{part}": getattr(estimate, part) if estimate else None for part in ("value", "low", "high")}
        yield rounded(row | {"minutes": cell.minutes, "frames_per_second": cell.frames_per_second})


def _curve_rows(records: TrialRecords) -> Iterable[dict[str, Any]]:
    for trial in records.trials:
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
