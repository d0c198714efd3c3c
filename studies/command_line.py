"""Parses command lines into configs; an invalid one raises a ConfigError with a message of one line."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import tyro

from configs.compare import COMPARE_PRESETS, CompareConfig
from configs.errors import ConfigError
from configs.plugins import check_trusted
from configs.shell import launch_command, program_name
from configs.tasks import joined_config
from configs.train import PRESETS, TrainConfig
from configs.without_effect import (
    changed_settings,
    check_games_use,
    check_optimisers_use,
    check_pool_uses,
    check_tasks_have,
    check_tasks_use,
    named_settings,
)
from training.progress import tell

T = TypeVar("T")

FIRST_FLAGS = {
    "--game": "what to play; `games` lists all",
    "--task": "auxiliary task, such as reverse_gvf; none is plain IMPALA",
    "--frames": "length of the run, such as 500k or 10M",
    "--run-dir": "where everything about the run is kept",
    "--resume": "continue the run in --run-dir",
    "--seed": "other seeds give other runs",
    "--torso": "shallow is fastest, nature the default, deep IMPALA's largest",
    "--batch-size": "trajectories in an update",
    "--learning-rate": "larger for short runs, such as 24e-4 for 500k frames with batches of 4",
    "--pool": "serial is reproducible bit for bit, ray overlaps playing and learning",
    "--device": "cpu or cuda; auto takes a GPU if there is one",
    "--film": "film a game at the end",
}
"""What one needs of `train` first, in short."""
EXAMPLES = (
    "--game pong --task reverse_gvf --frames 10M --run-dir runs/pong",
    "--game breakout --task none --torso shallow --batch-size 4 --learning-rate 24e-4 --frames 500k --film",
    "--run-dir runs/pong --resume --frames 20M",
)


def announce_imports(*modules: str) -> None:
    """Print the names of modules that are about to be imported, which takes seconds, unless they already are."""
    if missing := [name for name in modules if name not in sys.modules]:
        tell(f"starting: importing {' and '.join(missing)}")


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """The config that command-line flags describe; tyro's framed errors become one line."""
    return _parse(kind, command, arguments, default, return_unknown_args=False)


def parse_known(kind: type[T], command: str, arguments: Sequence[str]) -> tuple[T, list[str]]:
    """The config that the flags of `kind` itself describe, and the words that it does not know, such as flags of a task."""
    without_help = [word for word in arguments if word not in ("-h", "--help")]
    return _parse(kind, command, without_help, None, return_unknown_args=True)


def _parse(kind: Any, command: str, arguments: Sequence[str], default: Any, return_unknown_args: bool) -> Any:
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(  # type: ignore[call-overload]
                kind,
                prog=f"{program_name()} {command}",
                args=list(arguments),
                default=tyro.MISSING_NONPROP if default is None else default,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
                return_unknown_args=return_unknown_args,
            )
    except SystemExit as exit:
        if exit.code in (0, None):
            raise
        raise ConfigError(_one_line(complaint.getvalue(), command)) from None


def parse_train(arguments: Sequence[str]) -> TrainConfig:
    """The config of a run: flags override the preset, or with --resume the recorded config."""
    named, unknown = parse_known(TrainConfig, "train", arguments)
    if named.run.resume and not {"-h", "--help"} & set(arguments):
        started = _recorded_config(named, arguments)
        defaults = started.with_run(run_dir=str(named.run_path)).without_ray_address()
    else:
        started, defaults = None, PRESETS[named.preset].with_task(named.task)
    check_tasks_have(unknown, [defaults.task])
    if {"-h", "--help"} & set(arguments):
        print(first_help())
    config = parse(TrainConfig, "train", arguments, defaults)
    from envs.atari import atari_games
    from envs.registry import check_game

    if started is not None:
        config.check_resumes(started)
    check_game(config.env.game)
    chosen = changed_settings(config, defaults)
    check_tasks_use(chosen, [config.task])
    check_optimisers_use(chosen, [config.learner.optimiser])
    check_pool_uses(chosen, config.actors.pool, "--pool serial")
    check_games_use(chosen, [config.env.game], atari_games())
    return config


def first_help() -> str:
    """The flags of `train` that one needs first, with examples."""
    width = max(map(len, FIRST_FLAGS))
    flags = [f"  {name:{width}}  {text}" for name, text in FIRST_FLAGS.items()]
    examples = [f"  {launch_command('train')} {flags}" for flags in EXAMPLES]
    return "\n".join(["the flags you need first:", *flags, "", "examples:", *examples, "", "all flags:", ""])


def _recorded_config(named: TrainConfig, arguments: Sequence[str]) -> TrainConfig:
    """The config of the run to resume; raises an error for code of others that it names but the command line does not."""
    announce_imports("torch")
    from envs.registry import check_trusted_game
    from training.storage.run_directory import RunDirectory

    started = RunDirectory.open(named.run_path).read_config()
    check_trusted_game(started.env.game, named.env.game)
    check_trusted("torso", started.agent.torso, named.agent.torso)
    check_trusted("task", started.task, named.task)
    if named.task != started.task and ("task",) in named_settings(arguments):
        raise ConfigError(f"the run was started with --task {started.task}; it cannot resume with {named.task}")
    return started.with_trusted_task()


def parse_compare(arguments: Sequence[str]) -> CompareConfig:
    """The config of a sweep: flags override the preset; settings without effect on any trial are refused."""
    named, unknown = parse_known(CompareConfig, "compare", arguments)
    tasks = named.tasks or COMPARE_PRESETS[named.preset].tasks
    check_tasks_have(unknown, tasks or ("none",))
    defaults = replace(COMPARE_PRESETS[named.preset], auxiliary=joined_config(tasks or ("none",))())
    config = parse(CompareConfig, "compare", arguments, defaults)
    config.check_complete()
    given = {name for names in named_settings(unknown) for name in names}
    config = replace(config, auxiliary={name: value for name, value in asdict(config.auxiliary).items() if name in given})
    defaults = replace(defaults, auxiliary={})
    from envs.atari import atari_games
    from envs.game_sets import expand_games

    games = expand_games(config.games)
    chosen = changed_settings(replace(config, auxiliary={}), defaults)
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
    message = re.sub(r"^Error parsing (\w+Config|auxiliary): ", "", " ".join(body).strip())
    if "Perhaps you meant" in text or "Arguments similar to" in text:
        flags = re.findall(r"^\W? {4,5}(--[\w-]+)", text, flags=re.MULTILINE)  # Help texts are indented further.
        message += f"; did you mean {' or '.join(dict.fromkeys(flags))}?"
    return f"{message} ({launch_command(command, '--help')} explains every flag)"
