"""Settings of the commands other than `train` and `compare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from configs.errors import ConfigError
from configs.frames import parse_frames
from configs.plugins import nearest
from configs.settings import POSITIVE, check_bounds
from configs.shell import launch_command
from configs.tasks import BUILT_IN_TASKS


@dataclass(frozen=True)
class EvaluateConfig:
    """Play whole games with a trained agent and report their raw scores."""

    run_dir: str
    """Directory of the run."""
    episodes: Annotated[int, POSITIVE] = 100
    """Games to play."""
    checkpoint: Annotated[str, tyro.conf.arg(metavar="{newest,best,FRAME}")] = "newest"
    """Which weights to play with: the newest, those with the best score in training, or those of a frame that is kept."""
    greedy: bool = False
    """Take the most probable action instead of sampling from the policy."""
    seed: int = 1000
    """Seed of the games and the actions."""
    game: str = ""
    """Needed for runs of a game from your own module (`gym:MODULE:ID`): its name again. Modules are imported only if the
    command line names them, never because a run directory does."""
    torso: str = ""
    """Needed for runs with your own torso (`PACKAGE.MODULE:NAME`): its name again, for the same reason."""
    video: bool = False
    """Also film a game, as an mp4 in the run's videos/."""
    json: bool = False
    """Print the result as JSON."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if not self.run_dir:
            raise ConfigError("--run-dir is empty")
        self.checkpoint_frame()

    def checkpoint_frame(self) -> int | None:
        """The frame that --checkpoint names, or None for the newest and the best."""
        if self.checkpoint in ("newest", "best"):
            return None
        try:
            return parse_frames(self.checkpoint)
        except ValueError:
            raise ConfigError(f"--checkpoint must be newest, best or a frame, not {self.checkpoint!r}") from None


@dataclass(frozen=True)
class ReportConfig:
    """Make one page of the trials in one or more directories, finished or not: report.html, its figures and its numbers."""

    directories: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Sweeps made by `launch.py compare`, or directories of runs, or runs."""
    out: str = ""
    """Where the report is written; by default into the first directory."""
    task: str | None = None
    """The task that the others are compared with; by default reverse_gvf if it is there, else the last but `none`. Or one
    agent as the report names it, such as "gvf (learning_rate 3e-4)", which is then compared with every other."""

    def check_complete(self) -> None:
        if not self.directories:
            raise ConfigError(f"no directory was named ({launch_command('report', '--help')} explains every flag)")
        if "" in self.directories:
            raise ConfigError("the name of a directory is empty")


@dataclass(frozen=True)
class ReproduceConfig:
    """Make a figure of the paper again, or a study beyond it: data, picture and a summary in words.

    Studies: lambda, microdrone, reacher (the paper's figures), off_policy, streams, pagerank, changed_game,
    discovery.
    A rerun continues where it stopped.
    """

    out: str
    """Directory for the results."""
    runs: int = 0
    """Independent runs; 0 for the study's own number: 30 as in the paper, 5 for streams and off_policy, else 10."""
    seed: int = 0
    """Seed from which every run's own is derived."""
    ray_address: str = ""
    """Ray cluster to spread the runs over; by default a local one is started and ended."""

    def runs_or(self, default: int) -> int:
        return self.runs or default

    def __post_init__(self) -> None:
        if self.runs < 0 or self.runs == 1:
            raise ConfigError(f"--runs must be at least 2 for a standard error, not {self.runs}")
        if not self.out:
            raise ConfigError("--out is empty")
        check_bounds(self)


@dataclass(frozen=True)
class BenchmarkConfig:
    """Measure emulation, inference and learning alone, then real training, and how much of the machine it uses."""

    game: str = "pong"
    """Game to measure with."""
    torso: Literal["shallow", "nature", "deep"] = "nature"
    """Network to measure with."""
    unroll: Annotated[int, POSITIVE] = 20
    """Steps in a trajectory."""
    batch_size: Annotated[int, POSITIVE] = 32
    """Trajectories in an update."""
    seconds: Annotated[float, POSITIVE] = 30.0
    """How long real training is measured, after its warm-up; each part alone takes a third of it, half before, half after."""
    tasks: bool = True
    """Measure the auxiliary tasks as well: a learner step of each, and training with one learner and with the layout chosen."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TASK ...")] = ()
    """Auxiliary tasks to measure; all by default."""
    data_plane: bool = False
    """Measure the data path alone instead: actors send ready-made rollouts of real size through the real pool and collation to
    a learner that only publishes weights."""
    json: bool = False
    """Print JSON instead of a table."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for name in self.only:
            if name not in BUILT_IN_TASKS:
                known = nearest(name, BUILT_IN_TASKS) or f"; there is {', '.join(BUILT_IN_TASKS)}"
                raise ConfigError(f"--only: unknown task '{name}'{known}")
        if self.only and (self.data_plane or not self.tasks):
            raise ConfigError(f"--only has no effect with {'--data-plane' if self.data_plane else '--no-tasks'}")

    @property
    def measured_tasks(self) -> tuple[str, ...]:
        return (self.only or tuple(BUILT_IN_TASKS)) if self.tasks else ()

    def measured_with(self) -> dict[str, Any]:
        """The settings that the figures depend on."""
        return {name: getattr(self, name) for name in ("game", "torso", "unroll", "batch_size")}


@dataclass(frozen=True)
class GamesConfig:
    """List the games, with the published scores of those that have them."""

    json: bool = False
    """Print JSON instead of a table."""
