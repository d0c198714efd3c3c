"""Sets of games by name."""

from __future__ import annotations

from collections.abc import Sequence

from envs.atari import published_scores
from envs.registry import check_game

ATARI5 = ("battle_zone", "double_dunk", "name_this_game", "phoenix", "qbert")
GAME_SETS: dict[str, tuple[str, ...]] = {
    "atari5": ATARI5,
    "atari10": ("amidar", "bowling", "frostbite", "kung_fu_master", "riverraid", *ATARI5),
    "atari57": tuple(published_scores()),
}
"""Atari-5 and Atari-10 stand for all 57 in the least space (Aitchison et al. 2022)."""


def expand_games(names: Sequence[str]) -> tuple[str, ...]:
    """Games by name, sets replaced by their members, each once; raises GameError where there is no such game or set."""
    games: dict[str, None] = {}
    for name in names:
        if name not in GAME_SETS:
            check_game(name)
        games |= dict.fromkeys(GAME_SETS.get(name, (name,)))
    return tuple(games)
