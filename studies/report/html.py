"""HTML of tables, lists and intervals. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from studies.report.estimates import Estimate
from studies.report.verdicts import format_number

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
td .soft { font-size: 1em; }
tr.group th { padding-top: 1.1rem; color: var(--ink); white-space: normal; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; display: block; }
pre { background: var(--wash); padding: 0.7rem 0.9rem; border-radius: 6px; overflow-x: auto; font-size: 0.85rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 40rem) { table { min-width: 34rem; font-size: 0.8rem; } table.wide { min-width: 52rem; } }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  h2 { break-after: avoid; }
  figure, tr { break-inside: avoid; }
}
"""


class Html(str):
    """Text that is HTML already and is not escaped again."""


def table(heads: list[str], rows: Iterable[list[str]], numeric: tuple[int, ...] = ()) -> str:
    """A table whose cells are escaped unless they are Html; repeated values of the first column are shown once."""
    body, group = [], None
    for row in rows:
        body.append(_row_html("td", [Html("") if row[0] == group else row[0], *row[1:]], numeric))
        group = row[0]
    return _table_html("", _row_html("th", heads, numeric), body)


def grouped_table(heads: list[str], groups: dict[str, list[list[str]]], numeric: tuple[int, ...] = ()) -> str:
    """A table with a heading row above each group of rows."""
    body = []
    for name, rows in groups.items():
        body.append(f'<tr class="group"><th colspan="{len(heads)}">{escape(name)}</th></tr>')
        body += [_row_html("td", row, numeric) for row in rows]
    return _table_html(' class="wide"', _row_html("th", heads, numeric), body)


def _table_html(attributes: str, head: str, body: list[str]) -> str:
    return f'<div class="scroll"><table{attributes}><thead>{head}</thead><tbody>{"".join(body)}</tbody></table></div>'


def _row_html(tag: str, cells: list[str], numeric: tuple[int, ...]) -> str:
    kinds = [' class="number"' if column in numeric else "" for column in range(len(cells))]
    texts = [content if isinstance(content, Html) else escape(content) for content in cells]
    return "<tr>" + "".join(f"<{tag}{kind}>{text}</{tag}>" for kind, text in zip(kinds, texts, strict=True)) + "</tr>"


def bullets(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def interval(value: Estimate | None) -> str:
    if value is None:
        return "-"
    interval = "" if value.low is None or value.high is None else f" [{format_number(value.low)}, {format_number(value.high)}]"
    return format_number(value.value) + interval


def stacked_interval(value: Estimate | None) -> Html:
    """The point estimate with the interval on a second line."""
    number, bracket, rest = interval(value).partition(" [")
    return Html(f'{number}<br><span class="soft">[{rest}</span>' if bracket else number)


def format_optional(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
