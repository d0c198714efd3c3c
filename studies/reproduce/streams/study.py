"""Anomaly detection on real streams: the retrospective detector beside forward TD error, z-scores and river's detectors.

All detectors see the same training readings. The alarm's threshold is fixed by a false-alarm rate on held-out normal readings.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from configs.commands import ReproduceConfig
from retrospective.anomaly import conformal_threshold
from studies.reproduce.experiment import Experiment, Settings, require_extra
from studies.reproduce.streams.data import STREAMS, Stream
from studies.reproduce.streams.detectors import LEARNT, STEP_SIZE, Entry, entries
from studies.reproduce.streams.figures import draw
from studies.reproduce.streams.measures import measure
from studies.reproduce.streams.summary import summarise

SETTINGS: Settings = {
    "horizons": {"WaterFlow": [24, 6, 1], "Shuttle": [10, 1]},
    "false_alarm_rate": 0.01,
    "learnt_readings": LEARNT,
    "step_size": STEP_SIZE,
}
MODES = {"frozen": False, "learning": True}
"""Whether a detector learns from test readings after it has scored them."""
DEFAULT_RUNS = 5
DRAWN = "WaterFlow"
"""The stream whose scores are kept for the figure."""
Cell = tuple[str, str, Entry]


def reproduce_streams(config: ReproduceConfig, stop: threading.Event) -> str:
    """Write data.json, figure.png and summary.md; return the summary."""
    require_extra("streams", "streams", "river", "sklearn")
    streams = {name: STREAMS[name]() for name in SETTINGS["horizons"]}
    runs, cells = config.runs_or(DEFAULT_RUNS), make_cells(streams, SETTINGS)
    names = [[stream, detector] for stream, detector, _ in cells]
    settings = SETTINGS | {"study": "streams", "seed": config.seed, "cells": names}
    experiment = Experiment(Path(config.out), settings, config.ray_address)
    numbers = sum(1 if not cell[2].seeded else runs for cell in cells)
    data = experiment.collect(numbers, 1, run_cells, "reproduce streams", stop)
    rows = table(cells, data)
    if DRAWN in streams:
        scores = {detector: data[i]["scores"] for i, (stream, detector, _) in enumerate(cells) if stream == DRAWN}
        thresholds = {row["detector"]: row["threshold"] for row in rows if (row["stream"], row["mode"]) == (DRAWN, "frozen")}
        draw(streams[DRAWN], scores, thresholds, rows, experiment.out / "figure.png")
    experiment.write_json("data.json", {"runs": runs, "rows": rows})
    summary = summarise(streams, rows, runs, SETTINGS)
    experiment.write_text("summary.md", summary)
    return summary


def make_cells(streams: dict[str, Stream], settings: Settings) -> list[Cell]:
    """Stream, name of the detector and the detector, in the order of the table."""
    return [
        (name, detector, entry)
        for name, stream in streams.items()
        for detector, entry in entries(stream, settings["horizons"][name]).items()
    ]


def cell_and_seed(cells: Sequence[Cell], number: int) -> tuple[int, int]:
    """Index of the cell and seed of a run: first every cell with seed 0, then the seeded cells with seed 1, and so on."""
    if number < len(cells):
        return number, 0
    seeded = [i for i, cell in enumerate(cells) if cell[2].seeded]
    further, index = divmod(number - len(cells), len(seeded))
    return seeded[index], 1 + further


def run_cells(settings: Settings, numbers: Sequence[int]) -> list[dict[str, Any]]:
    streams = {name: STREAMS[name]() for name in settings["horizons"]}
    cells, found = make_cells(streams, settings), []
    for number in numbers:
        index, seed = cell_and_seed(cells, number)
        name, _, entry = cells[index]
        found.append(run_detector(streams[name], entry, settings["seed"] + seed, settings["false_alarm_rate"]))
    return found


def run_detector(stream: Stream, entry: Entry, seed: int, rate: float) -> dict[str, Any]:
    """Measures of one detector in both modes, processor time of a reading in microseconds, and pickled size in bytes."""
    detector = entry.make(stream, seed)
    detector.fit(stream.readings[stream.train])
    fitted = pickle.dumps(detector)
    found: dict[str, Any] = {"bytes": len(fitted)}
    for mode, learn in MODES.items():
        normal = pickle.loads(fitted).score(stream.readings[stream.calibrate], learn)
        threshold = conformal_threshold(normal[np.isfinite(normal)], rate)
        copies = [pickle.loads(fitted) for _ in stream.test]
        start = time.process_time()
        scores = [each.score(stream.readings[rows], learn) for each, rows in zip(copies, stream.test, strict=True)]
        seconds = (time.process_time() - start) / sum(map(len, scores))
        found[mode] = asdict(measure(stream, scores, threshold)) | {"threshold": threshold, "microseconds": 1e6 * seconds}
        if stream.name == DRAWN and mode == "frozen":
            every = np.nan_to_num(np.concatenate(scores), nan=0.0)
            found["scores"] = [float(f"{score:.4g}") for score in every]
    return found


def table(cells: list[Cell], data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each stream, mode and detector: the mean over seeds of every measure, and the AUC of each seed."""
    of_cell: list[list[dict[str, Any]]] = [[] for _ in cells]
    for number, run in enumerate(data):
        of_cell[cell_and_seed(cells, number)[0]].append(run)
    rows = []
    for mode in MODES:
        for (stream, detector, _), runs in zip(cells, of_cell, strict=True):
            row: dict[str, Any] = {"stream": stream, "mode": mode, "detector": detector, "bytes": runs[0]["bytes"]}
            for name in runs[0][mode]:
                values = [run[mode][name] for run in runs if run[mode][name] is not None]
                row[name] = float(np.mean(values)) if values else None
            row["aucs"] = [run[mode]["auc"] for run in runs]
            rows.append(row)
    return rows
