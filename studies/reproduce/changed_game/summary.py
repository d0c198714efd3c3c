"""The changed game in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from studies.reproduce.experiment import Settings

FRAMES_A_SECOND, FRAMES_A_STEP = 60, 4
CONTROLS = 2
"""The first rows of a game are controls."""


def summarise(rows: list[dict[str, Any]], rates: list[dict[str, Any]], runs: int, settings: Settings) -> str:
    seconds = settings["watching_steps"] * FRAMES_A_STEP / FRAMES_A_SECOND
    lines = [
        "# The changed game",
        "",
        f"A frozen agent plays {settings['streams']} streams in each of {runs} runs. Detectors learn from"
        f" {settings['learning_steps']:,} steps of normal play and are frozen; {settings['calibration_steps']:,} further steps"
        f" set the threshold of a false-alarm rate of {settings['false_alarm_rate']:.0%}, and the next"
        f" {settings['held_out_steps']:,} measure it. Then the game is changed. A change is noticed in a stream if there is an"
        f" alarm within {settings['watching_steps']} steps ({seconds:.0f} seconds of play). The first two rows of a table are"
        " controls: alarms that come without a change. A star: more streams than in the control, by a 95% bootstrap interval"
        " over runs; without any difference one comparison in forty would get one. In brackets: median delay in steps of the"
        " streams with an alarm.",
    ]
    for game in dict.fromkeys(row["game"] for row in rows):
        mine = [row for row in rows if row["game"] == game]
        lines += ["", f"## {game}", "", *_table(mine, [row for row in rates if row["game"] == game])]
        lines += ["", *_findings(mine), "", "Without a threshold: area under the ROC curve of the mean score after the change,"]
        lines += ["against that of the control's streams.", "", *_auc_table(mine)]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]], rates: list[dict[str, Any]]) -> list[str]:
    detectors = [row["detector"] for row in rates]
    columns = ["change", *detectors, "reward a step", "lives lost in 1,000 steps"]
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    measured = [f"{row['rate']:.1%} ({row['interval'][0]:.1%} to {row['interval'][1]:.1%})" for row in rates]
    lines.append(f"| false-alarm rate, held out | {' | '.join(measured)} | | |")
    for change in dict.fromkeys(row["change"] for row in rows):
        mine = {row["detector"]: row for row in rows if row["change"] == change}
        cells = [_cell(mine[detector]) for detector in detectors]
        pace = mine[detectors[0]]
        cells += [f"{pace['reward_a_step']:.2f}", f"{pace['lives_lost_in_1000_steps']:.1f}"]
        lines.append(f"| {change} | {' | '.join(cells)} |")
    return lines


def _auc_table(rows: list[dict[str, Any]]) -> list[str]:
    changes, detectors = (list(dict.fromkeys(row[name] for row in rows)) for name in ("change", "detector"))
    lines = [f"| change | {' | '.join(detectors)} |", "|" + " --- |" * (1 + len(detectors))]
    for change in changes[CONTROLS:]:
        aucs = " | ".join(f"{row['auc']:.2f}" for row in rows if row["change"] == change)
        lines.append(f"| {change} | {aucs} |")
    return lines


def _cell(row: dict[str, Any]) -> str:
    delay = "" if row["median_delay"] is None else f" ({row['median_delay']:.0f})"
    return f"{row['noticed']:.0%}{'*' if is_noticed(row) else ''}{delay}"


def is_noticed(row: dict[str, Any]) -> bool:
    """Whether there are more alarms than without the change."""
    return bool(row["interval"][0] > 0)


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    """Which changes each detector notices, which none does, and the best detector by the mean over changes."""
    changes, detectors = (list(dict.fromkeys(row[name] for row in rows)) for name in ("change", "detector"))
    changes = changes[CONTROLS:]
    rows = [row for row in rows if row["change"] in changes]
    found = {
        name: {row["change"]: _against(row) for row in rows if row["detector"] == name and is_noticed(row)}
        for name in detectors
    }
    gain = {name: sum(row["beyond_control"] for row in rows if row["detector"] == name) / len(changes) for name in detectors}
    missed = [change for change in changes if not any(change in names for names in found.values())]
    alone = [change for change in found[detectors[0]] if not any(change in found[other] for other in detectors[1:])]
    shares = ", ".join(f"{name} {share:.0%}" for name, share in gain.items())
    return [
        *(
            f"- {name} notices {len(changed)} of {len(changes)} changes: {_names(changed.values())}."
            for name, changed in found.items()
        ),
        f"- Noticed by none: {_names(missed)}. Only by the {detectors[0]} detector: {_names(alone)}.",
        f"- Share noticed beyond the control, mean over the changes: {shares}."
        f" **{max(gain, key=gain.__getitem__)}** notices most.",
    ]


def _against(row: dict[str, Any]) -> str:
    return f"{row['change']} ({row['noticed']:.0%} against {row['noticed'] - row['beyond_control']:.0%})"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
