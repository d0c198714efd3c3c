"""The state of a training run: what a checkpoint holds and how it is saved and loaded."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field

import psutil
import torch

from actors.pool import ActorPool, PoolReport
from agents.ranks import Ranks
from configs.errors import CheckpointError, RunError
from configs.train import TrainConfig
from learners.learner import Learner
from training.clock import Clock, RankReport
from training.metrics import EpisodeStatistics, Means, MetricsWriter
from training.storage.checkpoint import Checkpoint
from training.storage.files import explain
from training.storage.run_directory import RunDirectory

log = logging.getLogger(__name__)


@dataclass
class TrainingRun:
    """One rank's part of a run; statistics and run directory are rank 0's."""

    config: TrainConfig
    directory: RunDirectory
    pool: ActorPool
    learner: Learner
    ranks: Ranks
    episodes: EpisodeStatistics = field(default_factory=EpisodeStatistics)
    means: Means = field(default_factory=Means)
    elapsed: float = 0.0
    """Seconds of training, summed over resumptions."""
    clock: Clock = field(default_factory=Clock)
    pending: PoolReport = field(default_factory=PoolReport)
    """Of this rank, not yet gathered."""

    def gather_reports(self) -> list[RankReport]:
        """The reports of all ranks on rank 0, which counts their episodes; called by all ranks.

        Raises RunError if their parameters differ.
        """
        own = RankReport(
            self.pending,
            self.pool.health(),
            psutil.Process().memory_info().rss,
            self.ranks.take_seconds(),
            self.learner.checksum() if self.ranks.size > 1 else 0,
        )
        self.pending = PoolReport()
        reports: list[RankReport] = self.ranks.gather(own)
        for report in reports:
            self.episodes.add(report.pool.episodes)
        self.clock.add(reports)
        if len({report.checksum for report in reports}) > 1:
            raise RunError(
                f"the parameters of the learners differ at frame {self.learner.frame}, which no training gives;"
                " --resume continues from the checkpoint before"
            )
        return reports

    def save(self, writer: MetricsWriter | None) -> None:
        """Flush the metrics, then write a checkpoint; called by all ranks. Raises OSError on failure."""
        self.gather_reports()
        checkpoint = self._checkpoint()
        if writer is None:
            return
        writer.sync()
        best_before = self.episodes.best
        try:
            is_best = self.episodes.improved()
            checkpoint.values["episodes"] = self.episodes.state_dict()
            self.directory.checkpoints(self.config.run.keep_checkpoints).save(checkpoint, self.learner.frame, is_best)
        except OSError:
            self.episodes.best = best_before
            raise

    def save_or_warn(self, writer: MetricsWriter | None) -> bool:
        try:
            self.save(writer)
        except OSError as error:
            log.warning("no checkpoint could be saved at frame %d: %s", self.learner.frame, explain(error))
            return False
        return True

    def _checkpoint(self) -> Checkpoint:
        """The state of all ranks on rank 0."""
        learner = self.learner.state_dict()
        pools = self.ranks.gather(self.pool.state_dict()) or [self.pool.state_dict()]
        tensors = {f"learner.{name}": tensor for name, tensor in learner.items()}
        for rank, (pool_tensors, _) in enumerate(pools):
            tensors |= {f"{_pool_group(rank)}.{name}": tensor for name, tensor in pool_tensors.items()}
        values = {_pool_group(rank): pool_values for rank, (_, pool_values) in enumerate(pools)}
        return Checkpoint(
            tensors | {"torch_rng": torch.get_rng_state()},
            values | {"means": self.means.state_dict(), "elapsed": self.elapsed},
        )

    def load(self, checkpoint: Checkpoint) -> None:
        """Restore this rank's part; called by all ranks."""
        try:
            self.learner.load_state_dict(checkpoint.group("learner"))
            pool = _pool_group(self.ranks.rank)
            self.pool.load_state_dict(checkpoint.group(pool), checkpoint.values[pool])
            self.episodes.load_state_dict(checkpoint.values["episodes"])
            self.means.load_state_dict(checkpoint.values["means"])
            self.elapsed = float(checkpoint.values["elapsed"])
            if not 0 <= self.elapsed < math.inf or (self.learner.frame and not self.elapsed):
                raise ValueError(f"{self.learner.frame} frames cannot have taken {self.elapsed} s")
            torch.set_rng_state(checkpoint.tensors["torch_rng"])
        except (AttributeError, LookupError, TypeError, ArithmeticError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the newest checkpoint of {self.directory.path} does not fit: {error}") from None


def _pool_group(rank: int) -> str:
    return f"pool_{rank}" if rank else "pool"
