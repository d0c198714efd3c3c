"""The streams study in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.reproduce.experiment import Settings
from studies.reproduce.streams.data import Stream
from studies.reproduce.streams.measures import WEEK

TITLES = {
    "frozen": "Frozen after training",
    "learning": "Learning from each reading after scoring it",
}


def summarise(streams: dict[str, Stream], rows: list[dict[str, Any]], runs: int, settings: Settings) -> str:
    lines = [
        "# Real streams",
        "",
        f"Detectors are trained on normal readings. The threshold is fixed by a false-alarm rate of"
        f" {settings['false_alarm_rate']:.0%} on other normal readings. HalfSpaceTrees and LODA: means over {runs} seeds; the"
        f" others are deterministic. False alarms are counted for {WEEK} normal readings (a week of hourly ones), without the"
        " aftermath: the readings after an anomalous stretch whose recent past is anomalous too. The delay is in readings, of"
        " the stretches that are found. Time is processor time; size is that of the pickled detector.",
    ]
    for name, stream in streams.items():
        tested = np.concatenate(stream.test)
        lines += [
            "",
            f"## {name}",
            "",
            f"{len(stream.train):,} readings for training, {len(stream.calibrate):,} for calibration, {len(tested):,} for test,"
            f" of which {int(stream.labels[tested].sum()):,} are anomalous."
            + (f" The aftermath lasts {stream.aftermath} readings." if stream.aftermath else ""),
        ]
        for mode, title in TITLES.items():
            mine = [row for row in rows if (row["stream"], row["mode"]) == (name, mode)]
            lines += ["", f"{title}:", "", *_table(mine, stream.aftermath > 0), ""]
            lines += [_finding(mine, settings["false_alarm_rate"])]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]], aftermath: bool) -> list[str]:
    columns = ["detector", "AUC", *(["AUC without aftermath"] if aftermath else []), "found", "delay", "false alarms a week"]
    columns += [*(["alarms in the aftermath"] if aftermath else []), "us a reading", "kB"]
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    for row in rows:
        spread = f" +- {np.std(row['aucs'], ddof=1):.3f}" if len(row["aucs"]) > 1 else ""
        cells = [row["detector"], f"{row['auc']:.3f}{spread}"]
        cells += [f"{row['auc_without_aftermath']:.3f}"] if aftermath else []
        cells += [f"{row['found']:g} of {row['stretches']:g}", "-" if row["delay"] is None else f"{row['delay']:.1f}"]
        cells += [f"{row['false_alarms_a_week']:.1f}"]
        cells += [f"{row['aftermath_alarms']:.0%}"] if aftermath else []
        cells += [f"{row['microseconds']:.0f}", f"{row['bytes'] / 1000:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _finding(rows: list[dict[str, Any]], rate: float) -> str:
    """The best detector by AUC, the place of the main retrospective one, the fewest false alarms of those that miss least."""
    ranked = sorted(rows, key=lambda row: -row["auc"])
    main = rows[0]
    most = max(row["found"] for row in rows)
    thorough = [row for row in rows if row["found"] >= most]
    quiet = min(thorough, key=lambda row: row["false_alarms_a_week"])
    return (
        f"By AUC **{ranked[0]['detector']}** is best ({ranked[0]['auc']:.3f}); {main['detector']} has place"
        f" {ranked.index(main) + 1} of {len(rows)} ({main['auc']:.3f})."
        f" Of the detectors that find {most:g} of {main['stretches']:g} stretches, {quiet['detector']} has the fewest false"
        f" alarms ({quiet['false_alarms_a_week']:.1f} a week; {WEEK * rate:.1f} were asked for)."
    )
