"""Trained agents for use from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from actors.policy import Policy
from envs.registry import check_trusted_game, game_spec
from training.evaluation import load_agent
from training.storage.run_directory import RunDirectory


def load_policy(
    run_dir: str | Path,
    checkpoint: Literal["best", "newest"] | int = "newest",
    seed: int = 0,
    greedy: bool = False,
    game: str = "",
    torso: str = "",
) -> Policy:
    """The policy of a run, from its newest or best checkpoint or that of a frame.

    `game` and `torso` are needed where those of the run import code (`gym:MODULE:ID`, `PACKAGE.MODULE:NAME`): the caller names
    them, as with `evaluate --game` and `evaluate --torso`. Raises RunError, CheckpointError, GameError or ConfigError.
    """
    directory = RunDirectory.open(Path(run_dir))
    config = directory.read_config()
    check_trusted_game(config.env.game, game)
    checkpoints = directory.checkpoints(config.run.keep_checkpoints)
    if isinstance(checkpoint, int):
        chosen = checkpoints.of_frame(checkpoint)
    else:
        chosen = checkpoints.best() if checkpoint == "best" else checkpoints.newest()
    return Policy(load_agent(config, chosen, torso), game_spec(config.env.game, config.env.protocol), seed, greedy)
