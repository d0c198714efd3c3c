"""Named sets of games."""

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
"""Atari-5 and Atari-10 are the subsets that predict the median score of all 57 games best (Aitchison et al. 2022)."""


def expand_games(names: Sequence[str]) -> tuple[str, ...]:
    """Names of games, with sets replaced by their members and without repetitions; GameError for an unknown name."""
    games: dict[str, None] = {}
    for name in names:
        if name not in GAME_SETS:
            check_game(name)
        games |= dict.fromkeys(GAME_SETS.get(name, (name,)))
    return tuple(games)
