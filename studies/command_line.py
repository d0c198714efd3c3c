"""Parses command lines into configs; an invalid one raises a ConfigError with a message of one line."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import tyro

from configs.compare import COMPARE_PRESETS, CompareConfig
from configs.errors import ConfigError
from configs.shell import launch_command, program_name
from configs.train import PRESETS, TrainConfig
from configs.without_effect import changed_settings, check_games_use, check_optimisers_use, check_pool_uses, check_tasks_use
from training.progress import tell

T = TypeVar("T")


def announce_imports(*modules: str) -> None:
    """Print the names of modules that are about to be imported, which takes seconds, unless they already are."""
    if missing := [name for name in modules if name not in sys.modules]:
        tell(f"starting: importing {' and '.join(missing)}")


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """The config that command-line flags describe; tyro's framed errors become one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                prog=f"{program_name()} {command}",
                args=list(arguments),
                default=tyro.MISSING_NONPROP if default is None else default,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
            )
    except SystemExit as exit:
        if exit.code in (0, None):
            raise
        raise ConfigError(_one_line(complaint.getvalue(), command)) from None


def parse_train(arguments: Sequence[str]) -> TrainConfig:
    """The config of a run: flags override the preset, or with --resume the recorded config."""
    given = parse(TrainConfig, "train", arguments)
    defaults = PRESETS[given.preset]
    config = parse(TrainConfig, "train", arguments, defaults)
    from envs.atari import atari_games
    from envs.registry import check_game, check_trusted

    if config.run.resume:
        announce_imports("torch")
        from training.storage.run_directory import RunDirectory

        started = RunDirectory.open(config.run_path).read_config()
        check_trusted(started.env.game, given.env.game)
        defaults = started.with_run(run_dir=str(config.run_path)).without_ray_address()
        config = parse(TrainConfig, "train", arguments, defaults)
        config.check_resumes(started)
    check_game(config.env.game)
    chosen = changed_settings(config, defaults)
    check_tasks_use(chosen, [config.task])
    check_optimisers_use(chosen, [config.learner.optimiser])
    check_pool_uses(chosen, config.actors.pool, "--pool serial")
    check_games_use(chosen, [config.env.game], atari_games())
    return config


def resume_arguments(config: TrainConfig) -> list[str]:
    """Flags that resume a run, including those that are never read from its directory."""
    from configs.errors import GameError
    from envs.registry import check_trusted

    game: list[str] = []
    try:
        check_trusted(config.env.game, named="")
    except GameError:
        game = ["--game", config.env.game]
    cluster = ["--ray-address", config.actors.ray_address] if config.actors.ray_address else []
    return ["--run-dir", str(config.run_path), "--resume", *game, *cluster]


def parse_compare(arguments: Sequence[str]) -> CompareConfig:
    """The config of a sweep: flags override the preset; settings without effect on any trial are refused."""
    given = parse(CompareConfig, "compare", arguments)
    defaults = COMPARE_PRESETS[given.preset]
    config = parse(CompareConfig, "compare", arguments, defaults)
    config.check_complete()
    from envs.atari import atari_games
    from envs.game_sets import expand_games

    games = expand_games(config.games)
    chosen = changed_settings(config, defaults)
    try:
        check_tasks_use(chosen, config.tasks)
        check_optimisers_use(chosen | {variation.setting for variation in config.variations}, config.optimisers)
        check_pool_uses(changed_settings(config.learner, defaults.learner), config.pool, "--cores-per-trial 1")
        check_games_use(chosen, games, atari_games())
    except ConfigError:
        from studies.compare.sweep import sweep_file

        if not os.path.exists(sweep_file(Path(config.out))):  # A recorded sweep may continue with them.
            raise
    return config


def _one_line(framed: str, command: str) -> str:
    """The message in tyro's frame, with the flags that it suggests instead."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", framed)
    lines = [line.strip("│╭╮╰╯ \n") for line in text.splitlines()]
    body: list[str] = []
    for line in lines[1:]:
        if line.startswith(("──", "---")):  # The border of tyro's frame, in box-drawing characters or ASCII.
            if body:
                break
            continue
        body.append(line)
    message = re.sub(r"^Error parsing \w+Config: ", "", " ".join(body).strip())
    if "Perhaps you meant" in text or "Arguments similar to" in text:
        flags = re.findall(r"^\W? {4,5}(--[\w-]+)", text, flags=re.MULTILINE)  # Help texts are indented further.
        message += f"; did you mean {' or '.join(dict.fromkeys(flags))}?"
    return f"{message} ({launch_command(command, '--help')} explains every flag)"
