"""The page of a report: one HTML file with everything in it. Whatever comes from a file is escaped."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable
from html import escape

from studies.comparison_statistics import SHUFFLES, SIGNIFICANCE, Estimate
from studies.report_numbers import Numbers, Pair
from studies.statistics import LEVEL, RESAMPLES
from studies.trial_groups import settings_by_game
from studies.trial_records import Collection
from studies.verdicts import Verdict, figure

STYLE = """
:root { --ink: #1d2329; --soft: #5b6670; --line: #d9dee3; --wash: #f5f7f9; --good: #0a7d55; --bad: #b3261e; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.2rem 4rem; max-width: 62rem; color: var(--ink); background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.5rem 0 0.3rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 0.6rem; padding-top: 0.8rem; border-top: 1px solid var(--line); }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
.lead { font-size: 1.1rem; }
.soft, figcaption, caption { color: var(--soft); font-size: 0.9rem; }
.summary { background: var(--wash); border-left: 4px solid #d55e00; padding: 0.8rem 1.1rem; border-radius: 0 6px 6px 0; }
.problems { border-left: 4px solid var(--bad); padding: 0.1rem 1.1rem; margin: 1rem 0; font-size: 0.9rem; }
.problems ul { margin: 0; padding-left: 1.2rem; }
.summary ul { margin: 0; padding-left: 1.2rem; }
.summary li { margin: 0.2rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.3rem; }
th, td { text-align: left; padding: 0.35rem 0.8rem 0.35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--soft); white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
.better { color: var(--good); font-weight: 600; }
.worse { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; display: block; }
pre { background: var(--wash); padding: 0.7rem 0.9rem; border-radius: 6px; overflow-x: auto; font-size: 0.85rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 40rem) { table { min-width: 34rem; font-size: 0.8rem; } }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  h2 { break-after: avoid; }
  figure, tr { break-inside: avoid; }
}
"""

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
        + _picture("improvement", pictures, "There are no two tasks with finished trials on one game."),
        "<h2>Probability of improvement</h2>"
        + _picture("probability", pictures, "There are no two tasks with finished trials on one game."),
        _human_normalised(numbers, pictures),
        _cost(numbers),
        _origin(numbers, collection),
    ]
    title = escape(f"Does {numbers.task} help?")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
    body = "\n".join(sections)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}\n<style>{STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n'


def summary_lines(numbers: Numbers) -> list[str]:
    """One sentence for each comparison."""
    if not numbers.pairs:
        if len(numbers.agents) > 1:
            return [f"Nothing to compare: no game has trials of {numbers.task} and of another agent."]
        return [f"There is only one task, {numbers.task}: nothing to compare."]
    several = len({pair.agent for pair in numbers.pairs}) > 1
    return [f"{pair.agent + ' against' if several else 'Against'} {pair.other}: {_count(pair)}." for pair in numbers.pairs]


def _count(pair: Pair) -> str:
    kinds = Counter(verdict.kind for verdict in pair.games.values())
    words = {"better": "better", "worse": "worse", "open": "no difference shown", "too few": "too few seeds to tell"}
    games = ", ".join(f"{words[kind]} on {kinds[kind]}" for kind in words if kinds[kind])
    text = f"{games} of {len(pair.games)} games" if len(pair.games) > 1 else next(iter(pair.games.values())).words
    return f"{text}; over all games: {pair.overall.words}" if len(pair.games) > 1 else text


def _summary(numbers: Numbers, collection: Collection) -> str:
    finished = sum(trial.finished for trial in collection.trials)
    total = collection.planned
    state = f"{finished} of {total} trials are finished"
    notes = [f"{state}." if finished == total else f"{state}: this page is of an unfinished grid and will change."]
    if collection.failed:
        notes.append(f"{_counted(len(collection.failed), 'trial')} failed: see the end of the page.")
    lines = "".join(f"<li>{escape(line)}</li>" for line in summary_lines(numbers))
    games = ", ".join(numbers.games)
    return (
        f"<h1>Does {escape(numbers.task)} help?</h1>"
        f'<p class="lead">{_counted(len(numbers.games), "game")} ({escape(games)}),'
        f" {_counted(len(numbers.agents), 'agent')}. {escape(' '.join(notes))}</p>"
        + _problems(collection.problems)
        + f'<div class="summary"><ul>{lines}</ul></div>'
    )


def _problems(problems: list[str]) -> str:
    """What a reader must know before the numbers."""
    if not problems:
        return ""
    more = len(problems) - MAX_PROBLEMS
    lines = [*problems[:MAX_PROBLEMS], *([f"{more} more at the end of the page"] if more > 0 else [])]
    return f'<div class="problems"><p>To be looked at:</p>{_list(lines)}</div>'


def _verdicts(numbers: Numbers) -> str:
    rows = []
    for pair in numbers.pairs:
        name = f"{pair.agent} against {pair.other}"
        rows += [_verdict_row(name, game, verdict) for game, verdict in pair.games.items()]
        if len(pair.games) > 1:
            rows.append(_verdict_row(name, "all: probability of improvement", pair.overall))
    if not rows:
        return ""
    explanation = (
        f'"Better" and "worse" are said only where the {LEVEL:.0%} interval excludes no difference and the order of the runs'
        f" would come about by chance at most {SIGNIFICANCE:.0%} of the time. Each row stands for itself: of twenty rows"
        " without any real difference about one will claim one."
    )
    return (
        f"<h2>Verdicts</h2><p>{escape(numbers.task)} against each other agent, by final score.</p>"
        + _table(["agents", "game", "verdict", "difference", "chance"], rows, numeric=(3, 4))
        + f'<p class="soft">{explanation}</p>'
    )


def _verdict_row(agents: str, game: str, verdict: Verdict) -> list[str]:
    words = Html(f'<span class="{escape(verdict.kind)}">{escape(verdict.words)}</span>')
    return [agents, game, words, _interval(verdict.estimate), _p(verdict.chance)]


def _scores(numbers: Numbers) -> str:
    rows = [
        [cell.game, cell.agent, str(cell.finished), _interval(cell.score), _interval(cell.area)]
        for cell in numbers.cells
    ]  # fmt: skip
    return (
        "<h2>Final score and sample efficiency</h2>"
        + _table(["game", "agent", "seeds", "final score", "area under the curve"], rows, numeric=(2, 3, 4))
        + '<p class="soft">Raw scores of whole games. The area is the mean height of the learning curve: what was scored on the'
        " way. In brackets 95% bootstrap intervals over seeds; with fewer than about ten seeds they are too narrow.</p>"
    )


def _human_normalised(numbers: Numbers, pictures: dict[str, bytes]) -> str:
    heading = "<h2>Human-normalised scores</h2>"
    if not numbers.human_iqm:
        return heading + f"<p>{escape(numbers.human_note)}</p>"
    rows = [[agent, _interval(value)] for agent, value in numbers.human_iqm.items()]
    return (
        heading
        + f"<p>{escape(numbers.human_note)}</p>"
        + _table(["agent", "interquartile mean"], rows, numeric=(1,))
        + _picture("human_normalised", pictures, "")
        + _picture("profiles", pictures, "")
    )


def _cost(numbers: Numbers) -> str:
    rows = [
        [cell.game, cell.agent, _plain(cell.minutes, "{:,.1f}"), _plain(cell.frames_per_second, "{:,.0f}")]
        for cell in numbers.cells
    ]
    return (
        "<h2>Cost</h2>"
        + _table(["game", "agent", "minutes a trial", "frames/s"], rows, numeric=(2, 3))
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
    how = " or ".join(f"mean of {n} whole games" if n else "mean of the last 100 games of training" for n in games_played)
    facts = [
        f"Frames a trial: {', '.join(frames)}. Seeds: {', '.join(map(str, seeds))}.",
        f"Atari protocol: {', '.join(protocols)}." if protocols else "No Atari game, and so no protocol.",
        f"Final score: {how}, actions drawn from the policy." if how else "No trial is finished.",
        f"Intervals: {RESAMPLES:,} resamples of the seeds within each game. Chance: {SHUFFLES:,} shuffles. From a fixed seed.",
    ]
    for name, label in (("commit", "Commit"), ("machine", "Machine"), ("versions", "Versions")):
        values = sorted({json.dumps(trial.origin.get(name), sort_keys=True)[:2000] for trial in trials})
        facts.append(f"{label}: {'; '.join(map(_readable, values))}.")
    if by_game := list(settings_by_game(trials)):
        facts.append(f"Settings that differ from game to game: {'; '.join(by_game)}.")
    parts.append(_list(facts))
    unfinished = [f"{t.name}: {t.reached:,} of {t.frames:,} frames" for t in trials if not t.finished]
    failed = [f"{name}: {cause}" for name, cause in sorted(collection.failed.items())]
    for label, lines in (
        ("Trials that failed", failed),
        ("Trials not finished", unfinished),
        ("Trials not begun", collection.missing),
        ("To be looked at", collection.problems),
    ):
        if lines:
            parts.append(f"<h3>{label}</h3>{_list(lines)}")
    return "".join(parts)


def _readable(text: str) -> str:
    value = json.loads(text) if len(text) < 2000 else text
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return "unknown" if value is None else str(value)


def _table(heads: list[str], rows: Iterable[list[str]], numeric: tuple[int, ...] = ()) -> str:
    """Cells are escaped, except for those that are HTML already. What repeats down the first column is said once."""

    def line(tag: str, cells: list[str]) -> str:
        kinds = [' class="number"' if column in numeric else "" for column in range(len(cells))]
        texts = [content if isinstance(content, Html) else escape(content) for content in cells]
        return "<tr>" + "".join(f"<{tag}{kind}>{text}</{tag}>" for kind, text in zip(kinds, texts, strict=True)) + "</tr>"

    body, group = [], None
    for row in rows:
        body.append(line("td", [Html("") if row[0] == group else row[0], *row[1:]]))
        group = row[0]
    return f'<div class="scroll"><table><thead>{line("th", heads)}</thead><tbody>{"".join(body)}</tbody></table></div>'


class Html(str):
    """Text that is HTML already."""


def _picture(name: str, pictures: dict[str, bytes], otherwise: str) -> str:
    if name not in pictures:
        return f"<p>{escape(otherwise)}</p>"
    data = base64.b64encode(pictures[name]).decode()
    caption = escape(CAPTIONS[name])
    return f'<figure><img alt="{caption}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + "s" * (number != 1)


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _interval(value: Estimate | None) -> str:
    if value is None:
        return "-"
    interval = "" if value.low is None or value.high is None else f" [{figure(value.low)}, {figure(value.high)}]"
    return figure(value.value) + interval


def _plain(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _p(chance: float | None) -> str:
    return "-" if chance is None else f"{chance:.2g}"
