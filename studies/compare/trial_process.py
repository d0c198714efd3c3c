"""One trial of a sweep, in a process of its own that Ray places."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
from torch.utils.tensorboard import SummaryWriter

from actors.evaluator import film_game
from configs.errors import RunError
from studies.compare.sweep import Trial, TrialStatus
from training.evaluation import load_agent
from training.loop import train
from training.run_lock import InUseError, locked

LOCK_SECONDS = 30.0
"""How long the process of an earlier sweep that was killed may take to be gone."""
STRIP_PICTURES = 8
STRIP_HEIGHT = 168


class TrialProcess:
    """Runs one trial; `stop` may be called meanwhile, from another thread, and makes it save and end."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def run(self, trial: Trial, cores: int, working_directory: str) -> bool:
        """Begins, continues or finds finished what there is of the trial. False if it was stopped before its end."""
        try:
            os.chdir(working_directory)
        except OSError:
            raise RunError(
                f"{working_directory} is not on this machine; a cluster's sweep needs a disk that all share"
            ) from None
        status = _prepare(trial)
        if status is TrialStatus.FINISHED:
            return True
        finished = train(trial.config.with_run(resume=status is TrialStatus.INTERRUPTED), self._stop, cores) is not None
        if finished:
            write_strip(trial)
        return finished

    def stop(self) -> None:
        self._stop.set()


def _prepare(trial: Trial) -> TrialStatus:
    """What there is of the trial, as soon as nobody else is at work on it; what cannot be continued is cleared away."""
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
    """Pictures of one game after training, side by side, for TensorBoard."""
    config = trial.config
    agent = load_agent(config, trial.directory.checkpoints(config.run.keep_checkpoints).newest())
    film, _ = film_game(agent, config.env.game, config.env.protocol, config.run.seed)
    with SummaryWriter(str(trial.path), filename_suffix=".strip") as board:
        board.add_image("evaluation/game", strip(film), config.run.frames, dataformats="HWC")


def strip(film: list[np.ndarray]) -> np.ndarray:
    """[H, W', 3]: some pictures of a film, evenly spaced from the first to the last, from left to right."""
    chosen = [film[i] for i in np.linspace(0, len(film) - 1, min(STRIP_PICTURES, len(film))).round().astype(int)]
    zoom = max(1, STRIP_HEIGHT // chosen[0].shape[0])
    gap = np.full((chosen[0].shape[0] * zoom, 4, 3), 255, dtype=np.uint8)
    pieces = [piece for picture in chosen for piece in (picture.repeat(zoom, 0).repeat(zoom, 1), gap)]
    return np.concatenate(pieces[:-1], axis=1)
