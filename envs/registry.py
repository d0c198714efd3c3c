"""From a game's name to its games."""

from __future__ import annotations

import difflib

import gymnasium

from envs.atari import AtariGames, atari_games
from envs.catch import Catch
from envs.grid_games import GRIDS, GridGames
from envs.gymnasium_games import GymnasiumGames
from envs.stream import EnvSpec, GameError, Games

SMALL_GAMES = ("catch", *GRIDS)
GYMNASIUM_PREFIX = "gym:"
"""`gym:CarRacing-v3` plays the registered Gymnasium environment `CarRacing-v3`."""


def check_game(name: str) -> None:
    """Raises GameError, with the nearest names, if there is no such game."""
    if name.startswith(GYMNASIUM_PREFIX):
        prefix, wanted = GYMNASIUM_PREFIX, name.removeprefix(GYMNASIUM_PREFIX)
        known: tuple[str, ...] = tuple(gymnasium.registry)
        found = wanted in known or ":" in wanted
    else:
        prefix, wanted = "", name.lower().replace("-", "_")
        known = (*SMALL_GAMES, *atari_games())
        found = name in known
    if not found:
        near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(prefix + match for match in near)}?" if near else "`launch.py games` lists them"
        raise GameError(f"unknown game '{name}'; {hint}")


def check_trusted(recorded: str, named: str) -> None:
    """Raises GameError if playing the game that a file names would import a module that the user has not named as well."""
    module, colon, _ = recorded.removeprefix(GYMNASIUM_PREFIX).rpartition(":")
    if recorded.startswith(GYMNASIUM_PREFIX) and colon and named != recorded:
        raise GameError(f"this run's game would run the code of '{module}'; if you trust it, add --game {recorded}")


def make_games(name: str, protocol: str, num_envs: int, num_threads: int = 1, for_video: bool = False) -> Games:
    """N games of the given name; the protocol concerns Atari alone, and so does the colour of frames meant for a video."""
    check_game(name)
    if name.startswith(GYMNASIUM_PREFIX):
        return GymnasiumGames(name.removeprefix(GYMNASIUM_PREFIX), num_envs)
    if name == "catch":
        return Catch(num_envs)
    if name in GRIDS:
        return GridGames(GRIDS[name](), num_envs)
    return AtariGames(name, protocol, num_envs, num_threads, for_video)


def applied_protocol(name: str, protocol: str) -> str | None:
    """The Atari protocol that the game is played under, if it is played under one."""
    return protocol if name in atari_games() else None


def built_in_game(name: str) -> str | None:
    """The built-in Atari game with the ROM that a Gymnasium id plays through ale-py's own environment, if there is one."""
    spec = gymnasium.registry.get(name.removeprefix(GYMNASIUM_PREFIX).rpartition(":")[2])
    if not name.startswith(GYMNASIUM_PREFIX) or spec is None or spec.entry_point != "ale_py.env:AtariEnv":
        return None
    return game if (game := spec.kwargs.get("game")) in atari_games() else None


def optimal_score(name: str) -> float | None:
    """The best mean score, of games small enough for it to be known."""
    if name in GRIDS:
        return GRIDS[name]().optimal_score
    return Catch.optimal_score if name == "catch" else None


def game_spec(name: str, protocol: str) -> EnvSpec:
    """What `make_games` of the same arguments would play."""
    games = make_games(name, protocol, num_envs=1)
    games.close()
    return games.spec
