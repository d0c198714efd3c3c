"""What a run tells its user: how it was begun and resumed, how it ended, and the figures and film that stay with it."""

from __future__ import annotations

import io
import logging
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from configs.errors import GameError
from configs.plugins import is_foreign
from configs.shell import launch_command, program_name, tensorboard_command
from configs.train import TrainConfig
from envs.atari import published_scores
from envs.registry import check_trusted_game
from training.progress import counted
from training.storage.files import explain, write_atomically

log = logging.getLogger(__name__)

PICTURES = "pictures"
"""Directory of the last figures of the task."""


def resume_arguments(config: TrainConfig) -> list[str]:
    """Flags that resume a run, including those that are never read from its directory."""
    again: list[str] = []
    try:
        check_trusted_game(config.env.game, named="")
    except GameError:
        again = ["--game", config.env.game]
    again += ["--task", config.task] if is_foreign(config.task) else []
    again += ["--torso", config.agent.torso] if is_foreign(config.agent.torso) else []
    cluster = ["--ray-address", config.actors.ray_address] if config.actors.ray_address else []
    return ["--run-dir", str(config.run_path), "--resume", *again, *cluster]


def describe_run(config: TrainConfig) -> str:
    """Markdown for TensorBoard's TEXT tab: the command of this process, how to resume the run and how to watch it play."""
    run = str(config.run_path)
    rows = {
        "resume": launch_command("train", *resume_arguments(config)),
        "play and film": launch_command("evaluate", "--run-dir", run, "--video"),
        "train longer": _longer(config),
    }
    if Path(sys.argv[0]).name == program_name():
        rows = {"begun with": shlex.join([program_name(), *sys.argv[1:]])} | rows
    table = "\n".join(f"| {name} | `{command}` |" for name, command in rows.items())
    return f"| {config.env.game}, {config.task} | command |\n| --- | --- |\n{table}"


def describe_end(config: TrainConfig, result: dict[str, Any]) -> list[str]:
    """Lines for the end of a run: how long it took, its score beside others, and what to look at next."""
    seconds, speed = result["wall_seconds"], result["frames_per_second"]
    lines = [f"{counted(result['frames'], 'frame')} in {seconds:.0f} s ({speed:,.0f} frames/s)"]
    if result["evaluation"]:
        lines.append(describe_scores(result["evaluation"]))
    lines.append(f"watch the curves:  {tensorboard_command(config.run_path)}")
    if result.get("video"):
        lines.append(f"film of a game:    {result['video']}")
    else:
        lines.append(f"film a game:       {launch_command('evaluate', '--run-dir', str(config.run_path), '--video')}")
    lines += [f"picture:           {path}" for path in sorted((config.run_path / PICTURES).glob("*.png"))]
    lines.append(f"train longer:      {_longer(config)}")
    return lines


def _longer(config: TrainConfig) -> str:
    return launch_command("train", *resume_arguments(config), "--frames", str(2 * config.run.frames))


def describe_scores(evaluation: dict[str, Any]) -> str:
    """A line about whole games: their mean and median beside what is known of the game."""
    error = evaluation["standard_error"]
    rules = [f"{evaluation['protocol']} protocol"] if evaluation["protocol"] else []
    rules += ["greedy"] if evaluation["greedy"] else []
    known = published_scores().get(evaluation["game"])
    return (
        evaluation["game"]
        + (f" ({', '.join(rules)})" if rules else "")
        + f", {counted(evaluation['episodes'], 'game')}: mean {evaluation['mean']:.2f}"
        + (f" +- {error:.2f}" if error is not None else "")
        + f", median {evaluation['median']:.2f}"
        + (f"; random play {known.random:g}, human {known.human:g}" if known else "")
        + (f", human-normalised {evaluation['human_normalised']:.3f}" if evaluation["human_normalised"] is not None else "")
        + (f", best possible {evaluation['optimal']:.3f}" if evaluation["optimal"] is not None else "")
    )


def keep_pictures(run_dir: Path, images: dict[str, np.ndarray]) -> None:
    """Write the figures [H, W, 3] of a task beside its checkpoints; a disk that refuses is told of and no more."""
    for name, image in images.items():
        path = run_dir / PICTURES / f"{name}.png"
        data = io.BytesIO()
        Image.fromarray(image).save(data, "png")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data.getvalue())
        except OSError as error:
            log.warning("%s cannot be written: %s", path, explain(error))
