"""The registry of games: from a name to vectorised games."""

from __future__ import annotations

import difflib

import gymnasium

from configs.errors import GameError
from configs.plugins import untrusted
from configs.shell import launch_command
from envs.atari import TWO_PLAYER_GAMES, AtariGames, atari_games
from envs.catch import Catch
from envs.grid_games import GRIDS, GridGames
from envs.gymnasium_games import GymnasiumGames
from envs.stream import EnvSpec, Games

SMALL_GAMES = ("catch", *GRIDS)
GYMNASIUM_PREFIX = "gym:"
"""`gym:CarRacing-v3` plays the registered Gymnasium environment `CarRacing-v3`."""
MODULES = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid", "MiniWorld-": "miniworld"}
"""Prefixes of the ids of some packages, and the modules that register them; only used in error messages."""


def check_game(name: str) -> None:
    """Raise GameError, with the nearest names, for an unknown game."""
    if name.startswith(GYMNASIUM_PREFIX):
        _check_registered(name.removeprefix(GYMNASIUM_PREFIX))
        return
    wanted, known = name.lower().replace("-", "_"), (*SMALL_GAMES, *atari_games())
    if wanted in TWO_PLAYER_GAMES:
        raise GameError(f"{wanted} needs two players, and the agent plays alone; {_how_to_list()}")
    if name not in known:
        near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
        raise GameError(f"unknown game '{name}'; {_did_you_mean(near) or _how_to_list()}")


def _check_registered(env_id: str) -> None:
    """Raise GameError for an id that is not registered with Gymnasium and names no module to import."""
    if ":" in env_id or env_id in gymnasium.registry:
        return
    near = difflib.get_close_matches(env_id, tuple(gymnasium.registry), n=3, cutoff=0.75)
    module = next((module for start, module in MODULES.items() if env_id.startswith(start)), "MODULE")
    hints = [_did_you_mean([GYMNASIUM_PREFIX + match for match in near])] if near else []
    hints.append(f"if a package provides it, name its module: {GYMNASIUM_PREFIX}{module}:{env_id}")
    raise GameError(
        f"unknown game '{GYMNASIUM_PREFIX}{env_id}': no Gymnasium environment of that name is registered; {' '.join(hints)}"
    )


def _how_to_list() -> str:
    return f"for a list: {launch_command('games')}"


def _did_you_mean(names: list[str]) -> str:
    return f"did you mean {' or '.join(names)}?" if names else ""


def check_trusted_game(recorded: str, named: str) -> None:
    """Raise GameError if the game `recorded` in a file would import a module, unless the user `named` the same game."""
    module, colon, _ = recorded.removeprefix(GYMNASIUM_PREFIX).rpartition(":")
    if recorded.startswith(GYMNASIUM_PREFIX) and colon and named != recorded:
        raise GameError(untrusted("game", module, recorded))


def make_games(name: str, protocol: str, num_envs: int, num_threads: int = 1, for_video: bool = False) -> Games:
    """N games of the given name; `protocol`, `num_threads` and `for_video` apply to Atari only."""
    check_game(name)
    if name.startswith(GYMNASIUM_PREFIX):
        return GymnasiumGames(name.removeprefix(GYMNASIUM_PREFIX), num_envs)
    if name == "catch":
        return Catch(num_envs)
    if name in GRIDS:
        return GridGames(GRIDS[name](), num_envs)
    return AtariGames(name, protocol, num_envs, num_threads, for_video)


def applied_protocol(name: str, protocol: str) -> str | None:
    """The Atari protocol of the game; None for other games."""
    return protocol if name in atari_games() else None


def built_in_game(name: str) -> str | None:
    """Name of the built-in Atari game with the same ROM as ale-py's Gymnasium environment `name`; None for others."""
    spec = gymnasium.registry.get(name.removeprefix(GYMNASIUM_PREFIX).rpartition(":")[2])
    if not name.startswith(GYMNASIUM_PREFIX) or spec is None or spec.entry_point != "ale_py.env:AtariEnv":
        return None
    return game if (game := spec.kwargs.get("game")) in atari_games() else None


def optimal_score(name: str) -> float | None:
    """Optimal mean score of the small pixel games; None for others."""
    if name in GRIDS:
        return GRIDS[name]().optimal_score
    return Catch.optimal_score if name == "catch" else None


def game_spec(name: str, protocol: str) -> EnvSpec:
    """EnvSpec of `make_games` with the same arguments."""
    games = make_games(name, protocol, num_envs=1)
    games.close()
    return games.spec
