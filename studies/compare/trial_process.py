"""The Ray actor that runs one trial of a sweep."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
from torch.utils.tensorboard import SummaryWriter

from actors.evaluator import record_frames
from actors.nodes import check_software, this_node
from configs.errors import NodeError
from studies.compare.sweep import Trial, TrialStatus, sweep_file
from training.evaluation import load_agent
from training.loop import train
from training.storage.run_lock import InUseError, locked

LOCK_SECONDS = 30.0
"""Time to wait for a trial's process that survives a killed sweep to exit."""
STRIP_FRAMES = 8
STRIP_HEIGHT = 168


class TrialProcess:
    """Runs one trial; `stop`, called from another thread, makes it save a checkpoint and return."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def run(self, trial: Trial, cores: int, working_directory: str, expected: dict[str, str]) -> bool:
        """Start or resume the trial; return False if it was stopped before its end.

        Raises NodeError if this machine's software is not as expected or the sweep's directory is not here.
        """
        check_software(expected)
        check_visible(working_directory, trial.path.parent)
        status = _prepare(trial)
        if status is TrialStatus.FINISHED:
            return True
        finished = train(trial.config.with_run(resume=status is TrialStatus.INTERRUPTED), self._stop, cores) is not None
        if finished:
            write_strip(trial)
        return finished

    def stop(self) -> None:
        self._stop.set()


def check_visible(working_directory: str, out: Path) -> None:
    """Change to the directory that paths are relative to; raises NodeError unless the sweep's directory is visible here."""
    try:
        os.chdir(working_directory)
        visible = sweep_file(out).is_file()
    except OSError:
        visible = False
    if not visible:
        raise NodeError(f"--out {out} of the sweep is not visible on node {this_node()}; its machines must share a disk")


def _prepare(trial: Trial) -> TrialStatus:
    """The status of the trial once its directory is unlocked; the directory of a trial without checkpoint is emptied."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            with locked(trial.path):
                status = trial.status()
                if status in (TrialStatus.NEW, TrialStatus.BEGUN):
                    trial.clear()
                return status
        except InUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def write_strip(trial: Trial) -> None:
    """Write frames of one game after training, side by side, as an image to TensorBoard."""
    config = trial.config
    checkpoint = trial.directory.checkpoints(config.run.keep_checkpoints).newest()
    agent = load_agent(config, checkpoint, config.agent.torso)
    film, _ = record_frames(agent, config.env.game, config.env.protocol, config.run.seed)
    with SummaryWriter(str(trial.path), filename_suffix=".strip") as board:
        board.add_image("evaluation/game", strip(film), config.run.frames, dataformats="HWC")


def strip(film: list[np.ndarray]) -> np.ndarray:
    """An image [H, W', 3] of evenly spaced frames of a video, side by side."""
    chosen = [film[i] for i in np.linspace(0, len(film) - 1, min(STRIP_FRAMES, len(film))).round().astype(int)]
    zoom = max(1, STRIP_HEIGHT // chosen[0].shape[0])
    gap = np.full((chosen[0].shape[0] * zoom, 4, 3), 255, dtype=np.uint8)
    pieces = [piece for frame in chosen for piece in (frame.repeat(zoom, 0).repeat(zoom, 1), gap)]
    return np.concatenate(pieces[:-1], axis=1)
