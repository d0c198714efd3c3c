"""The HTML page of a report: one file without external references. All text is escaped."""

from __future__ import annotations

import base64
import json
from collections import Counter
from html import escape

from studies.report.agents import settings_by_game
from studies.report.analysis import Analysis
from studies.report.calibration import MIN_TRIALS, SPLITS, Calibration
from studies.report.comparisons import MEASURES, MeasureVerdicts
from studies.report.estimates import PERMUTATIONS, SIGNIFICANCE
from studies.report.html import (
    STYLE,
    Html,
    bullets,
    format_optional,
    grouped_table,
    interval,
    stacked_interval,
    table,
)
from studies.report.records import TrialRecords
from studies.report.verdicts import Verdict, format_percent
from studies.statistics import CONFIDENCE, RESAMPLES
from training.progress import counted

MAX_PROBLEMS = 10
"""Shown at the top of the page; all are listed at its end."""
CAPTIONS = {
    "curves": "Learning curves: mean return of the last 100 games. Bands: 95% bootstrap confidence intervals over seeds.",
    "relative_area": "Area under the learning curve divided by the mean area of the plain agent (dashed), with 95% stratified"
    " bootstrap confidence intervals over the seeds of both.",
    "improvement": "Relative improvement, as in the paper's figure 4. Black: 95% bootstrap confidence intervals over the seeds"
    " of both agents. Question mark: no interval (one seed, or the baseline's interval contains 0).",
    "probability": "Probability of improvement. Ties count half; 0.5 (dashed) is no difference. 95% stratified bootstrap"
    " confidence intervals.",
    "human_normalised": "Interquartile mean over all seeds and games (0: random play, 1: human), with 95% stratified bootstrap"
    " confidence intervals.",
    "profiles": "Performance profiles; higher is better. 95% stratified bootstrap confidence bands, pointwise.",
}


NO_PAIR = "No game has finished trials of two compared agents."


def page(analysis: Analysis, records: TrialRecords, figures: dict[str, bytes]) -> str:
    sections = [
        _summary(analysis, records),
        _verdicts(analysis),
        "<h2>Learning curves</h2>" + _figure("curves", figures, "No game has ended yet."),
        _scores(analysis),
        _relative_areas(analysis, figures),
        "<h2>Relative improvement</h2>" + _figure("improvement", figures, NO_PAIR),
        "<h2>Probability of improvement</h2>" + _figure("probability", figures, NO_PAIR),
        _human_normalised(analysis, figures),
        _cost(analysis),
        _origin(analysis, records),
    ]
    title = escape(f"Does {analysis.task} help?")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
    body = "\n".join(sections)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}\n<style>{STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n'


def summary_lines(analysis: Analysis) -> list[str]:
    """One sentence per pair of agents and measure."""
    if not analysis.pairs:
        if len(analysis.agents) > 1:
            return [f"Nothing to compare: no game has trials of {analysis.task} and of another agent."]
        return [f"There is only one task, {analysis.task}: nothing to compare."]
    several = len({pair.agent for pair in analysis.pairs}) > 1
    lines = []
    for pair in analysis.pairs:
        against = f"{pair.agent} against {pair.other}" if several else f"Against {pair.other}"
        lines += [f"{against}, {name}: {_count(pair.verdicts_by(measure))}." for measure, name in MEASURES.items()]
    return lines


def _count(found: MeasureVerdicts) -> str:
    verdicts = list(found.games.values())
    if len(verdicts) == 1:
        return verdicts[0].words + (f" ({verdicts[0].power})" if verdicts[0].power else "")
    kinds = Counter(verdict.kind for verdict in verdicts)
    words = {"better": "better", "worse": "worse", "open": "no significant difference", "too few": "too few seeds to tell"}
    games = ", ".join(f"{words[kind]} on {kinds[kind]}" for kind in words if kinds[kind])
    return f"{games} of {len(verdicts)} games; over all games: {found.overall.words}"


def _summary(analysis: Analysis, records: TrialRecords) -> str:
    finished = sum(trial.finished for trial in records.trials)
    total = records.planned
    status = f"{finished} of {total} trials are finished"
    notes = [f"{status}." if finished == total else f"{status}: the sweep is not complete, and these results will change."]
    if records.failed:
        notes.append(f"{counted(len(records.failed), 'trial')} failed: see the end of the page.")
    lines = "".join(f"<li>{escape(line)}</li>" for line in summary_lines(analysis))
    games = ", ".join(analysis.games)
    return (
        f"<h1>Does {escape(analysis.task)} help?</h1>"
        f'<p class="lead">{counted(len(analysis.games), "game")} ({escape(games)}),'
        f" {counted(len(analysis.agents), 'agent')}. {escape(' '.join(notes))}</p>"
        + _problems(records.problems)
        + f'<div class="summary"><ul>{lines}</ul></div>'
    )


def _problems(problems: list[str]) -> str:
    """The first problems, for the top of the page."""
    if not problems:
        return ""
    more = len(problems) - MAX_PROBLEMS
    lines = [*problems[:MAX_PROBLEMS], *([f"{more} more at the end of the page"] if more > 0 else [])]
    return f'<div class="problems"><p>Problems:</p>{bullets(lines)}</div>'


def _verdicts(analysis: Analysis) -> str:
    if not analysis.pairs:
        return ""
    heads = ["game", "verdict", "difference", "p", "p (Holm)", "paired difference", "p (paired)"]
    parts = ["<h2>Verdicts</h2>"]
    for measure, name in MEASURES.items():
        groups = {}
        for pair in analysis.pairs:
            found = pair.verdicts_by(measure)
            rows = [_verdict_row(game, verdict) for game, verdict in found.games.items()]
            if len(found.games) > 1:
                rows.append(_verdict_row("all games: probability of improvement", found.overall))
            groups[f"{pair.agent} against {pair.other}"] = rows
        parts.append(f"<h3>By {name}</h3>" + grouped_table(heads, groups, numeric=(2, 3, 4, 5, 6)))
    facts = [
        f'"Better" and "worse" require that the {CONFIDENCE:.0%} bootstrap confidence interval excludes no difference and that'
        f" p (Holm) is at most {SIGNIFICANCE:.2g}. p: two-sided permutation test. p (Holm): after Holm's correction for all"
        " rows of the table.",
        "Paired difference: mean difference between trials of the same seed, which start from the same weights and play games"
        " of the same seeds, with its confidence interval and the uncorrected p of the sign-flip permutation test. Verdicts do"
        " not depend on it. Over games it is in standard deviations of all runs of both agents on a game.",
        _calibration(analysis.calibration),
    ]
    return "".join(parts) + f'<div class="soft">{bullets(facts)}</div>'


def _calibration(found: Calibration | None) -> str:
    if found is None:
        return f"Calibration: unknown; it needs {MIN_TRIALS} finished trials of the plain agent on each game."
    error = (SIGNIFICANCE * CONFIDENCE / SPLITS) ** 0.5
    return (
        f"Calibration: false positive rate {format_percent(found.false_positive_rate)}; at most {SIGNIFICANCE:.0%} is expected"
        f" (standard error {format_percent(error)}). It is the share of splits of the finished trials of {found.agent} into two"
        f" groups ({SPLITS} random splits, or all) for which any verdict is better or worse."
    )


def _verdict_row(game: str, verdict: Verdict) -> list[str]:
    power = f'<br><span class="soft">{escape(verdict.power)}</span>' if verdict.power else ""
    words = Html(f'<span class="{escape(verdict.kind)}">{escape(verdict.words)}</span>{power}')
    paired, paired_p = (verdict.paired.estimate, verdict.paired.p_value) if verdict.paired else (None, None)
    p_values = [format_optional(value, "{:.2g}") for value in (verdict.p_value, verdict.holm_p_value, paired_p)]
    return [game, words, stacked_interval(verdict.estimate), *p_values[:2], stacked_interval(paired), p_values[2]]


def _scores(analysis: Analysis) -> str:
    rows = [
        [cell.game, cell.agent, str(cell.finished), interval(cell.score), interval(cell.area)]
        for cell in analysis.cells
    ]  # fmt: skip
    return (
        "<h2>Final score and sample efficiency</h2>"
        + table(["game", "agent", "seeds", "final score", "area under the curve"], rows, numeric=(2, 3, 4))
        + '<p class="soft">Raw scores of whole games. The area under the learning curve is divided by its width: the mean score'
        " during training. In brackets: 95% bootstrap confidence intervals over seeds, which are too narrow with fewer than"
        " about ten seeds.</p>"
    )


def _relative_areas(analysis: Analysis, figures: dict[str, bytes]) -> str:
    found = analysis.relative_areas
    if not found.by_game:
        return ""
    left_out = [game for game in analysis.games if game not in found.games]
    note = f" Left out, without finished trials of every agent or with scores of 0 or below: {', '.join(left_out)}."
    games = counted(len(found.games), "game")
    rows = [[agent, interval(value)] for agent, value in found.overall.items()]
    overall = table(["agent", f"mean over {games}"], rows, numeric=(1,))
    return (
        f"<h2>Area relative to {escape(found.baseline)}</h2>"
        + (overall if rows else "<p>Not averaged over games: they were played under different protocols.</p>")
        + _figure("relative_area", figures, "")
        + f'<p class="soft">1 is the plain agent.{escape(note) if left_out else ""}</p>'
    )


def _human_normalised(analysis: Analysis, figures: dict[str, bytes]) -> str:
    heading = "<h2>Human-normalised scores</h2>"
    if not analysis.human_iqm:
        return heading + f"<p>{escape(analysis.human_note)}</p>"
    rows = [[agent, interval(value)] for agent, value in analysis.human_iqm.items()]
    return (
        heading
        + f"<p>{escape(analysis.human_note)}</p>"
        + table(["agent", "interquartile mean"], rows, numeric=(1,))
        + _figure("human_normalised", figures, "")
        + _figure("profiles", figures, "")
    )


def _cost(analysis: Analysis) -> str:
    rows = [
        [cell.game, cell.agent, format_optional(cell.minutes, "{:,.1f}"), format_optional(cell.frames_per_second, "{:,.0f}")]
        for cell in analysis.cells
    ]
    return (
        "<h2>Cost</h2>"
        + table(["game", "agent", "minutes per trial", "frames/s"], rows, numeric=(2, 3))
        + '<p class="soft">Means over finished trials. Trials ran in parallel with each other and with any other load of the'
        " machine.</p>"
    )


def _origin(analysis: Analysis, records: TrialRecords) -> str:
    trials = records.trials
    parts = ["<h2>Reproducibility</h2>"]
    if records.commands:
        parts.append(f"<pre>{escape(chr(10).join(records.commands))}</pre>")
    seeds = sorted({trial.seed for trial in trials})
    frames = [f"{count:,}" for count in sorted({trial.frames for trial in trials})]
    protocols = sorted({trial.protocol for trial in trials if trial.protocol is not None})
    games_played = sorted({trial.evaluated_games for trial in trials if trial.finished})
    how = " or ".join(
        f"mean of {counted(n, 'whole game')}" if n else "mean of the last 100 games of training" for n in games_played
    )
    facts = [
        f"Frames per trial: {', '.join(frames)}. Seeds: {', '.join(map(str, seeds))}.",
        f"Atari protocol: {', '.join(protocols)}." if protocols else "No Atari games.",
        f"Final score: {how}, with actions sampled from the policy." if how else "No trial is finished.",
        f"Confidence intervals: percentile bootstrap, {RESAMPLES:,} resamples of the seeds within each game. p: all"
        f" permutations if there are at most {PERMUTATIONS:,}, else so many random ones. The generator's seed is fixed.",
    ]
    for name, label in (("commit", "Commit"), ("machine", "Machine"), ("versions", "Versions")):
        values = sorted({json.dumps(trial.origin.get(name), sort_keys=True)[:2000] for trial in trials})
        facts.append(f"{label}: {'; '.join(map(_readable, values))}.")
    if by_game := list(settings_by_game(trials)):
        facts.append(f"Settings that differ between games: {'; '.join(by_game)}.")
    parts.append(bullets(facts))
    unfinished = [f"{t.name}: {t.reached:,} of {t.frames:,} frames" for t in trials if not t.finished]
    failed = [f"{name}: {cause}" for name, cause in sorted(records.failed.items())]
    for label, lines in (
        ("Failed trials", failed),
        ("Unfinished trials", unfinished),
        ("Trials not started", records.missing),
        ("Problems", records.problems),
    ):
        if lines:
            parts.append(f"<h3>{label}</h3>{bullets(lines)}")
    return "".join(parts)


def _readable(text: str) -> str:
    """A JSON value as plain text."""
    value = json.loads(text) if len(text) < 2000 else text
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return "unknown" if value is None else str(value)


def _figure(name: str, figures: dict[str, bytes], otherwise: str) -> str:
    if name not in figures:
        return f"<p>{escape(otherwise)}</p>"
    data = base64.b64encode(figures[name]).decode()
    caption = escape(CAPTIONS[name])
    return f'<figure><img alt="{caption}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
