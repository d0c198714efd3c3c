"""The list of games with their published scores."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from envs.atari import atari_games, published_scores
from envs.registry import GYMNASIUM_PREFIX, SMALL_GAMES, optimal_score

PUBLISHED = ("random", "human", "impala_shallow", "impala_deep")
COLUMNS = (*PUBLISHED, "optimal")


def list_games() -> list[dict[str, Any]]:
    """All games with their published scores and the optimal score, None where unknown."""
    scores = published_scores()
    unknown = dict.fromkeys(PUBLISHED)
    return [
        {"game": game, "kind": "atari" if game not in SMALL_GAMES else "small"}
        | (asdict(scores[game]) if game in scores else unknown)
        | {"optimal": optimal_score(game)}
        for game in (*SMALL_GAMES, *atari_games())
    ]


def print_games() -> None:
    table = Table(caption=f"IMPALA: at 200M frames. Optimal: computed. {GYMNASIUM_PREFIX}ID plays any Gymnasium environment.")
    table.add_column("game", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.replace("_", " "), justify="right")
    for row in list_games():
        table.add_row(
            row["game"],
            *("" if row[column] is None else f"{row[column]:,.{2 if column == 'optimal' else 1}f}" for column in COLUMNS),
        )
    Console().print(table)
