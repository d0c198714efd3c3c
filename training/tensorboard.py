"""TensorBoard views of a run beside the metrics themselves: overview, custom charts and a row under HPARAMS."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from agents.tasks import AuxiliaryTask
from configs.train import TrainConfig
from envs.registry import applied_protocol
from training.storage.files import explain

log = logging.getLogger(__name__)

OVERVIEW = {
    "charts/episode_return": "Overview/1_return",
    "charts/episode_length": "Overview/2_length",
    "charts/frames_per_second": "Overview/3_frames_per_second",
}
"""Metrics that are shown once more, and the tags for that. TensorBoard sorts tags, capitals before small letters, and opens
on the first groups."""
HPARAMS_SUFFIX = ".hparams"
FINAL = ("final/score", "final/training_return", "final/human_normalised", "final/frames_per_second")

Layout = dict[str, dict[str, list[Any]]]


def custom_charts(task: AuxiliaryTask) -> Layout:
    """Charts for CUSTOM SCALARS, by category and title; those about questions only for tasks that have any."""
    layout: Layout = {
        "learning": {
            "return of the last 100 games": _lines("charts/episode_return"),
            "length of the last 100 games, in frames": _lines("charts/episode_length"),
            # TensorBoard puts margins after lines.
            "return: mean, worst and best": ["Margin", [f"charts/episode_return{end}" for end in ("", "_min", "_max")]],
        },
        "lag and speed": {
            "policy lag, in updates": _lines("policy/lag(_max)?"),
            "frames per second": _lines("charts/frames_per_second"),
            "shares of the learner's time": _lines("time/(wait|collate|learn|publish)"),
        },
    }
    if task.questions is not None:
        layout["questions"] = {
            "error of the answers (a constant achieves 1)": _lines("auxiliary/answer_error"),
            "cumulants: mean and spread": _lines("questions/cumulant_(mean|spread)"),
            "mean discount": _lines("questions/discount_mean"),
        }
    if task.learns_questions:
        layout["meta-gradient"] = {
            "loss of the window": _lines("meta/loss"),
            "norms of the meta-gradient and of the update": _lines("meta/(gradient|update)_norm"),
        }
    return layout


def _lines(tags: str) -> list[Any]:
    return ["Multiline", [f"^{tags}$"]]


def write_hparams(
    run_dir: Path, config: TrainConfig, result: dict[str, Any], varied: Mapping[str, str] = MappingProxyType({})
) -> None:
    """The run's only row in the table of HPARAMS: the settings that matter most, those that are `varied` in its sweep, and the
    numbers of its result."""
    score = (result.get("evaluation") or {}).get("mean", result.get("training_return"))
    numbers = {name: result.get(name.removeprefix("final/")) for name in FINAL} | {"final/score": score}
    try:
        for old in run_dir.glob(f"events.out.tfevents.*{HPARAMS_SUFFIX}"):
            old.unlink()
        with SummaryWriter(str(run_dir), filename_suffix=HPARAMS_SUFFIX) as board:
            # TensorBoard takes the columns of all runs from one of them, so every run names all.
            for summary in hparams(_settings(config) | dict(varied), dict.fromkeys(FINAL, 0.0)):
                board.file_writer.add_summary(summary)
            for name, value in numbers.items():
                if isinstance(value, float | int):
                    board.add_scalar(name, value, config.run.frames)
    except OSError as error:
        log.warning("TensorBoard's HPARAMS of %s cannot be written: %s", run_dir, explain(error))


def _settings(config: TrainConfig) -> dict[str, str | float]:
    """Always the same names. TensorBoard sorts them and shows five: `changed` lists all that differs from the defaults."""
    main = {"game": config.env.game, "task": config.task, "torso": config.agent.torso, "seed": str(config.run.seed)}
    groups = ["agent", "learner", "auxiliary"]
    if applied_protocol(config.env.game, config.env.protocol):
        groups.append("env")
    ours, usual = config.to_dict(), TrainConfig().with_task(config.task).to_dict()
    changed = ", ".join(
        f"{name}={value}"
        for group in groups
        for name, value in ours[group].items()
        if value != usual[group][name] and name not in main
    )
    update = {f"update/{name}": ours["learner"][name] for name in ("batch_size", "entropy_cost", "learning_rate", "unroll")}
    return {"changed": changed} | main | update
