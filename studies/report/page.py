"""The page of a report: one HTML file with everything in it. Whatever comes from a file is escaped."""

from __future__ import annotations

import base64
import json
from collections import Counter
from html import escape

from studies.report.agents import settings_by_game
from studies.report.analysis import Numbers
from studies.report.calibration import LEAST_TRIALS, SPLITS, Calibration
from studies.report.comparisons import MEASURES, Judged
from studies.report.estimates import SHUFFLES, SIGNIFICANCE
from studies.report.html import (
    STYLE,
    Html,
    bullets,
    grouped_table,
    interval,
    plain,
    probability,
    stacked_interval,
    table,
)
from studies.report.records import Collection
from studies.report.verdicts import Verdict, percent
from studies.statistics import LEVEL, RESAMPLES
from training.progress import counted

MAX_PROBLEMS = 10
"""Shown before the numbers; all are at the end."""
CAPTIONS = {
    "curves": "Mean return of the last 100 games over environment frames. Bands: 95% bootstrap intervals over seeds.",
    "improvement": "The paper's figure 4. Black: 95% bootstrap intervals over the seeds of both agents. A question mark stands"
    " where there is no interval (one seed, or a baseline that may be 0, where a ratio means little).",
    "probability": "Ties count half; one half (dashed) is no difference. 95% stratified bootstrap intervals.",
    "human_normalised": "0 is random play, 1 a human tester. Interquartile mean over all seeds and games, with 95% stratified"
    " bootstrap intervals.",
    "profiles": "Higher is better. 95% stratified bootstrap intervals, point by point.",
}


def page(numbers: Numbers, collection: Collection, pictures: dict[str, bytes]) -> str:
    sections = [
        _summary(numbers, collection),
        _verdicts(numbers),
        "<h2>Learning curves</h2>" + _picture("curves", pictures, "No trial has finished a game yet."),
        _scores(numbers),
        "<h2>Improvement, as in the paper</h2>"
        + _picture("improvement", pictures, "There are no two agents with finished trials on one game."),
        "<h2>Probability of improvement</h2>"
        + _picture("probability", pictures, "There are no two agents with finished trials on one game."),
        _human_normalised(numbers, pictures),
        _cost(numbers),
        _origin(numbers, collection),
    ]
    title = escape(f"Does {numbers.task} help?")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
    body = "\n".join(sections)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}\n<style>{STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n'


def summary_lines(numbers: Numbers) -> list[str]:
    """One sentence for each comparison and measure."""
    if not numbers.pairs:
        if len(numbers.agents) > 1:
            return [f"Nothing to compare: no game has trials of {numbers.task} and of another agent."]
        return [f"There is only one task, {numbers.task}: nothing to compare."]
    several = len({pair.agent for pair in numbers.pairs}) > 1
    lines = []
    for pair in numbers.pairs:
        against = f"{pair.agent} against {pair.other}" if several else f"Against {pair.other}"
        lines += [f"{against}, {name}: {_count(pair.judged(measure))}." for measure, name in MEASURES.items()]
    return lines


def _count(judged: Judged) -> str:
    verdicts = list(judged.games.values())
    if len(verdicts) == 1:
        return verdicts[0].words + (f" ({verdicts[0].power})" if verdicts[0].power else "")
    kinds = Counter(verdict.kind for verdict in verdicts)
    words = {"better": "better", "worse": "worse", "open": "no difference shown", "too few": "too few seeds to tell"}
    games = ", ".join(f"{words[kind]} on {kinds[kind]}" for kind in words if kinds[kind])
    return f"{games} of {len(verdicts)} games, over all games {judged.overall.words}"


def _summary(numbers: Numbers, collection: Collection) -> str:
    finished = sum(trial.finished for trial in collection.trials)
    total = collection.planned
    state = f"{finished} of {total} trials are finished"
    notes = [f"{state}." if finished == total else f"{state}: this page is of an unfinished sweep and will change."]
    if collection.failed:
        notes.append(f"{counted(len(collection.failed), 'trial')} failed: see the end of the page.")
    lines = "".join(f"<li>{escape(line)}</li>" for line in summary_lines(numbers))
    games = ", ".join(numbers.games)
    return (
        f"<h1>Does {escape(numbers.task)} help?</h1>"
        f'<p class="lead">{counted(len(numbers.games), "game")} ({escape(games)}),'
        f" {counted(len(numbers.agents), 'agent')}. {escape(' '.join(notes))}</p>"
        + _problems(collection.problems)
        + f'<div class="summary"><ul>{lines}</ul></div>'
    )


def _problems(problems: list[str]) -> str:
    """What a reader must know before the numbers."""
    if not problems:
        return ""
    more = len(problems) - MAX_PROBLEMS
    lines = [*problems[:MAX_PROBLEMS], *([f"{more} more at the end of the page"] if more > 0 else [])]
    return f'<div class="problems"><p>To be looked at:</p>{bullets(lines)}</div>'


def _verdicts(numbers: Numbers) -> str:
    if not numbers.pairs:
        return ""
    heads = ["game", "verdict", "difference", "p", "p (Holm)", "seed by seed", "p"]
    parts = ["<h2>Verdicts</h2>"]
    for measure, name in MEASURES.items():
        groups = {}
        for pair in numbers.pairs:
            judged = pair.judged(measure)
            rows = [_verdict_row(game, verdict) for game, verdict in judged.games.items()]
            if len(judged.games) > 1:
                rows.append(_verdict_row("all: probability of improvement", judged.overall))
            groups[f"{pair.agent} against {pair.other}"] = rows
        parts.append(f"<h3>By {name}</h3>" + grouped_table(heads, groups, numeric=(2, 3, 4, 5, 6)))
    facts = [
        f'"Better" and "worse" are said only where the {LEVEL:.0%} interval excludes no difference and p (Holm) is at most'
        f" {SIGNIFICANCE:.2g}. p: how likely chance orders the runs of two equal agents as clearly (permutation test)."
        " p (Holm): the same corrected for all rows of the table, each table for itself.",
        "Seed by seed: the mean of the differences between trials of the same seed, which begin with the same weights and play"
        " the same games, with its interval and the p of the sign-flip test, uncorrected. No verdict rests on it. Over games it"
        " is in standard deviations of all runs of both agents on a game.",
        _calibration(numbers.calibration),
    ]
    return "".join(parts) + f'<div class="soft">{bullets(facts)}</div>'


def _calibration(found: Calibration | None) -> str:
    if found is None:
        return f"Calibration: not known; it takes {LEAST_TRIALS} finished trials of the plain agent on each game."
    return (
        f"Calibration: the finished trials of {found.agent} were split into two groups, in {SPLITS} random ways or in all there"
        f" are, and the verdicts on them claimed a difference, in any row, {percent(found.claims)} of the time;"
        f" {SIGNIFICANCE:.0%} is the limit, give or take {percent((SIGNIFICANCE * LEVEL / SPLITS) ** 0.5)} for so few splits."
    )


def _verdict_row(game: str, verdict: Verdict) -> list[str]:
    power = f'<br><span class="soft">{escape(verdict.power)}</span>' if verdict.power else ""
    words = Html(f'<span class="{escape(verdict.kind)}">{escape(verdict.words)}</span>{power}')
    paired, chance = (verdict.paired.estimate, verdict.paired.chance) if verdict.paired else (None, None)
    unpaired = [stacked_interval(verdict.estimate), probability(verdict.chance), probability(verdict.corrected)]
    return [game, words, *unpaired, stacked_interval(paired), probability(chance)]


def _scores(numbers: Numbers) -> str:
    rows = [
        [cell.game, cell.agent, str(cell.finished), interval(cell.score), interval(cell.area)]
        for cell in numbers.cells
    ]  # fmt: skip
    return (
        "<h2>Final score and sample efficiency</h2>"
        + table(["game", "agent", "seeds", "final score", "area under the curve"], rows, numeric=(2, 3, 4))
        + '<p class="soft">Raw scores of whole games. The area is the mean height of the learning curve: what was scored on the'
        " way. In brackets 95% bootstrap intervals over seeds; with fewer than about ten seeds they are too narrow.</p>"
    )


def _human_normalised(numbers: Numbers, pictures: dict[str, bytes]) -> str:
    heading = "<h2>Human-normalised scores</h2>"
    if not numbers.human_iqm:
        return heading + f"<p>{escape(numbers.human_note)}</p>"
    rows = [[agent, interval(value)] for agent, value in numbers.human_iqm.items()]
    return (
        heading
        + f"<p>{escape(numbers.human_note)}</p>"
        + table(["agent", "interquartile mean"], rows, numeric=(1,))
        + _picture("human_normalised", pictures, "")
        + _picture("profiles", pictures, "")
    )


def _cost(numbers: Numbers) -> str:
    rows = [
        [cell.game, cell.agent, plain(cell.minutes, "{:,.1f}"), plain(cell.frames_per_second, "{:,.0f}")]
        for cell in numbers.cells
    ]
    return (
        "<h2>Cost</h2>"
        + table(["game", "agent", "minutes a trial", "frames/s"], rows, numeric=(2, 3))
        + '<p class="soft">Means over finished trials, as they ran, beside other trials and whatever else the machine'
        " did.</p>"
    )


def _origin(numbers: Numbers, collection: Collection) -> str:
    trials = collection.trials
    parts = ["<h2>How it was made</h2>"]
    if collection.commands:
        parts.append(f"<pre>{escape(chr(10).join(collection.commands))}</pre>")
    seeds = sorted({trial.seed for trial in trials})
    frames = [f"{count:,}" for count in sorted({trial.frames for trial in trials})]
    protocols = sorted({trial.protocol for trial in trials if trial.protocol is not None})
    games_played = sorted({trial.evaluated_games for trial in trials if trial.finished})
    how = " or ".join(
        f"mean of {counted(n, 'whole game')}" if n else "mean of the last 100 games of training" for n in games_played
    )
    facts = [
        f"Frames a trial: {', '.join(frames)}. Seeds: {', '.join(map(str, seeds))}.",
        f"Atari protocol: {', '.join(protocols)}." if protocols else "No Atari game, and so no protocol.",
        f"Final score: {how}, actions drawn from the policy." if how else "No trial is finished.",
        f"Intervals: {RESAMPLES:,} resamples of the seeds within each game. p: every permutation, or {SHUFFLES:,} random"
        " ones where there are more. From a fixed seed.",
    ]
    for name, label in (("commit", "Commit"), ("machine", "Machine"), ("versions", "Versions")):
        values = sorted({json.dumps(trial.origin.get(name), sort_keys=True)[:2000] for trial in trials})
        facts.append(f"{label}: {'; '.join(map(_readable, values))}.")
    if by_game := list(settings_by_game(trials)):
        facts.append(f"Settings that differ from game to game: {'; '.join(by_game)}.")
    parts.append(bullets(facts))
    unfinished = [f"{t.name}: {t.reached:,} of {t.frames:,} frames" for t in trials if not t.finished]
    failed = [f"{name}: {cause}" for name, cause in sorted(collection.failed.items())]
    for label, lines in (
        ("Trials that failed", failed),
        ("Trials not finished", unfinished),
        ("Trials not begun", collection.missing),
        ("To be looked at", collection.problems),
    ):
        if lines:
            parts.append(f"<h3>{label}</h3>{bullets(lines)}")
    return "".join(parts)


def _readable(text: str) -> str:
    value = json.loads(text) if len(text) < 2000 else text
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return "unknown" if value is None else str(value)


def _picture(name: str, pictures: dict[str, bytes], otherwise: str) -> str:
    if name not in pictures:
        return f"<p>{escape(otherwise)}</p>"
    data = base64.b64encode(pictures[name]).decode()
    caption = escape(CAPTIONS[name])
    return f'<figure><img alt="{caption}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
