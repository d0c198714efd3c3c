"""TensorBoard of a sweep: one chart per game with all agents, and a row per trial under HPARAMS.

Each trial writes its own curves like any run. A custom chart selects tags but not runs, so the returns are written again under
`overlay/AGENT` (a task and its varied settings), with a tag for each game and seed: charts are games, colours are agents.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from configs.settings import setting_text
from studies.compare.sweep import OVERLAY_DIRECTORY, Sweep, Trial, read_json
from training.progress import tell
from training.storage.files import explain
from training.tensorboard import HPARAMS_SUFFIX, write_hparams


class SweepBoard:
    """Rewrites the sweep's event files from the trials' metrics whenever the sweep is started or continued.

    If the disk refuses, nothing more is written until then, since the trials matter more than their overview.
    """

    def __init__(self, sweep: Sweep):
        self._sweep = sweep
        self._overlays: dict[str, SummaryWriter] = {}
        self._written: dict[str, int] = {}
        self._rows: set[str] = set()
        self._refused = False
        with self._tolerant():
            self._open(sweep)

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Context that ends the writing instead of raising OSError."""
        try:
            yield
        except OSError as error:
            if not self._refused:
                tell(
                    f"TensorBoard's overview of the sweep is not written: {explain(error)}; continuing the sweep makes it again"
                )
            self._refused = True

    def _open(self, sweep: Sweep) -> None:
        for old in sweep.out.glob("events.out.tfevents.*"):
            old.unlink()
        overlay = sweep.out / OVERLAY_DIRECTORY
        shutil.rmtree(overlay, ignore_errors=True)
        self._overlays = {agent: SummaryWriter(str(overlay / agent), flush_secs=10) for agent in sweep.agents}
        with SummaryWriter(str(sweep.out)) as board:
            charts = {game: ["Multiline", [f"{re.escape(game)}/"]] for game in sweep.games}
            board.add_custom_scalars({"return of the last 100 games: a chart for each game, a colour for each agent": charts})

    def add(self, trial: Trial, lines: Iterable[dict[str, Any]]) -> None:
        """Add lines of a trial's metrics, without frames that were added before."""
        for line in lines:  # All of them in any case: the progress follows what is read here.
            score = line.get("charts/episode_return")
            if isinstance(score, float | int) and line["frame"] > self._written.get(trial.name, -1) and not self._refused:
                tag = f"{trial.config.env.game}/seed{trial.config.run.seed}"
                with self._tolerant():
                    self._overlays[trial.agent].add_scalar(tag, score, line["frame"])
                self._written[trial.name] = line["frame"]

    def finish(self, trial: Trial) -> None:
        """Write the trial's row of HPARAMS; without varied settings the training has already written it."""
        if trial.name in self._rows or self._refused:
            return
        self._rows.add(trial.name)
        varied = {
            variation.setting: "-" if (value := trial.settings.get(variation.setting)) is None else setting_text(value)
            for variation in self._sweep.config.variations
        }
        with self._tolerant():
            if varied or not any(trial.path.glob(f"events.out.tfevents.*{HPARAMS_SUFFIX}")):
                write_hparams(trial.path, trial.config, read_json(trial.directory.result_path), varied)

    def close(self) -> None:
        for overlay in self._overlays.values():
            with self._tolerant():
                overlay.close()
