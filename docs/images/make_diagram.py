"""Draws docs/images/architecture.svg: actors, learner, question discovery and the run directory.

python docs/images/make_diagram.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT = 900, 580
INK, MUTED = "#1f2933", "#52606d"
BLUE, GREEN, ORANGE, GREY = "#e3effb", "#e4f4e6", "#fdefd9", "#eef0f2"

Point = tuple[int, int]


def group(x: int, y: int, width: int, height: int, title: str, colour: str) -> str:
    """A coloured area with its title at the top left."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="{colour}"/>'
        f'<text x="{x + 16}" y="{y + 26}" class="title">{title}</text>'
    )


def box(x: int, y: int, width: int, height: int, title: str, *lines: str) -> str:
    """A white box with a name and lines of explanation, centred."""
    top = y + height / 2 + 5 - 9 * len(lines)
    texts = [f'<text x="{x + width / 2:g}" y="{top:g}" class="name">{title}</text>']
    texts += [
        f'<text x="{x + width / 2:g}" y="{top + 18 * (i + 1):g}" class="line">{line}</text>' for i, line in enumerate(lines)
    ]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="box"/>' + "".join(texts)


def arrow(points: Sequence[Point], label: str = "", at: Point = (0, 0), anchor: str = "middle") -> str:
    """A line through the points that ends in an arrowhead; its label stands at `at`."""
    path = " ".join(f"{'L' if i else 'M'} {x} {y}" for i, (x, y) in enumerate(points))
    text = f'<text x="{at[0]}" y="{at[1]}" class="label" text-anchor="{anchor}">{label}</text>' if label else ""
    return f'<path d="{path}" class="arrow" marker-end="url(#head)"/>{text}'


def draw() -> str:
    """The diagram as SVG text."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        "<title>Actors send trajectories to the learner and get its weights; the meta-gradient trains the questions</title>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M 0 0 L 10 5 L 0 10 z" fill="{INK}"/></marker></defs>',
        "<style>text { font-family: Helvetica, Arial, 'DejaVu Sans', sans-serif; }"
        f" .title {{ font-size: 17px; font-weight: bold; fill: {INK}; }}"
        f" .name {{ font-size: 15px; font-weight: bold; fill: {INK}; text-anchor: middle; }}"
        f" .line {{ font-size: 13px; fill: {MUTED}; text-anchor: middle; }}"
        f" .label {{ font-size: 13px; fill: {INK}; }}"
        f" .box {{ fill: #ffffff; stroke: {MUTED}; stroke-width: 1.2; }}"
        f" .arrow {{ fill: none; stroke: {INK}; stroke-width: 1.6; }}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        group(15, 15, 250, 335, "Actors", BLUE),
        box(35, 60, 210, 66, "Games", "Atari, small pixel games,", "gym:ID"),
        box(35, 196, 210, 66, "Rollout", "T steps of N games", "with a copy of θ"),
        '<text x="140" y="296" class="line">serial pool: in the same process</text>',
        '<text x="140" y="316" class="line">Ray pool: a process for each actor,</text>',
        '<text x="140" y="334" class="line">on one machine or a cluster</text>',
        arrow([(95, 126), (95, 196)], "frames,", (87, 157), "end"),
        '<text x="87" y="173" class="label" text-anchor="end">rewards</text>',
        arrow([(185, 196), (185, 126)], "actions", (193, 165), "start"),
        group(375, 15, 510, 335, "Learner", GREEN),
        box(395, 95, 110, 66, "Torso", "features"),
        box(540, 55, 155, 60, "Policy and value", "heads, LSTM optional"),
        box(540, 141, 155, 60, "Auxiliary heads", "answers"),
        box(735, 55, 130, 146, "Loss", "V-trace (L_RL)", "+ auxiliary (L_aux)", "summed over", "time and batch"),
        box(540, 258, 155, 72, "Update of θ", "clip by global norm,", "RMSProp or Adam"),
        arrow([(505, 118), (522, 118), (522, 85), (540, 85)]),
        arrow([(505, 138), (522, 138), (522, 171), (540, 171)]),
        arrow([(695, 85), (735, 85)]),
        arrow([(695, 171), (735, 171)]),
        arrow([(765, 201), (765, 294), (695, 294)], "gradient", (730, 285)),
        arrow([(245, 229), (305, 229), (305, 128), (395, 128)], "trajectories", (320, 92)),
        '<text x="320" y="108" class="label" text-anchor="middle">→ batch [T + 1, B]</text>',
        arrow([(540, 294), (290, 294), (290, 250), (245, 250)], "weights θ, versioned", (455, 286)),
        group(375, 395, 510, 170, "Question discovery", ORANGE),
        '<text x="630" y="552" class="line">tasks gvf and reverse_gvf; with random questions φ never changes</text>',
        box(395, 440, 200, 84, "Meta-gradient", "of L_RL, exact, through", "the last K updates of θ"),
        box(695, 440, 170, 84, "Question network φ", "cumulants, discounts"),
        arrow([(580, 330), (580, 440)], "window of updates", (572, 377), "end"),
        arrow([(595, 482), (695, 482)], "update of φ", (645, 473)),
        '<text x="645" y="501" class="label" text-anchor="middle">every M</text>',
        '<text x="645" y="517" class="label" text-anchor="middle">updates of θ</text>',
        arrow([(830, 440), (830, 201)], "questions", (822, 377), "end"),
        group(15, 395, 250, 170, "Run directory", GREY),
        '<text x="140" y="445" class="line">config.json, metrics.jsonl,</text>',
        '<text x="140" y="464" class="line">checkpoints/, result.json</text>',
        box(35, 500, 210, 48, "TensorBoard", "curves, histograms, pictures"),
        arrow([(140, 474), (140, 500)], "events", (148, 491), "start"),
        arrow([(410, 350), (410, 372), (140, 372), (140, 395)], "metrics, checkpoints", (300, 365)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("architecture.svg").write_text(draw())
