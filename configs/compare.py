"""Settings of `launch.py compare`: a sweep of games, tasks, settings and seeds, and what its trials have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

import tyro

from configs.errors import ConfigError
from configs.frames import FrameCount
from configs.settings import POSITIVE, Setting, check_bounds, facts, flag
from configs.shell import launch_command
from configs.tasks import TASK_CHOICES, task_type
from configs.train import (
    EXECUTION,
    PRESETS,
    ActorConfig,
    AgentConfig,
    EnvConfig,
    LearnerConfig,
    RunConfig,
    TrainConfig,
    without_execution,
)
from configs.vary import Variation, parse_variation, variants, with_settings


@dataclass(frozen=True)
class CompareConfig:
    """Train every task on every game with every seed, as many trials at once as there are cores. A rerun continues."""

    preset: Literal["default", "paper"] = "default"
    """Defaults of all other flags. paper: ten Atari games, five tasks, 3 seeds, 200M frames, IMPALA's network
    and learner."""
    games: tuple[str, ...] = ()
    """Games by name (`launch.py games` lists them) or by set: atari5, atari10, atari57."""
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{TASK_CHOICES} ...")] = ()
    """Auxiliary tasks to compare; `none` is the plain agent. With --help, the flags of the tasks are shown too: each is for all
    the tasks that have it; --vary is for one of them."""
    vary: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Values of a setting to compare, such as learning_rate=3e-4,6e-4, or for one task gvf.answer_weight=0.03,0.1. Repeat
    the flag for more settings; all combinations are trained. A setting does not multiply the trials of tasks that do not read
    it."""
    seeds: Annotated[int, Setting(positive=True, most=10_000)] = 3
    """Seeds for each game and task."""
    first_seed: int = 1
    """The first of them; the others follow. A second sweep with later seeds adds to a first one in `launch.py report`."""
    frames: Annotated[FrameCount, POSITIVE] = 10_000_000
    """Environment frames that each trial trains for; 10M, 1e7 and 10_000_000 are the same."""
    out: Annotated[str, EXECUTION] = ""
    """Directory of the sweep: one run directory for each trial."""
    archive: Annotated[str, EXECUTION] = ""
    """Directory to keep finished trials in as well, in one small file each (config, result and curves), such as a repository
    can hold. Trials that are there already are not trained again, and `launch.py report` reads it."""
    dry_run: Annotated[bool, EXECUTION] = False
    """Only say what the sweep would take."""
    cores_per_trial: Annotated[int, Setting(positive=True, role="execution")] = 1
    """1: each trial in one process on one core, reproducible bit for bit, which uses a machine best as long as there are more
    trials than cores. More: a learner and Ray actors for each trial."""
    gpus_per_trial: Annotated[float, EXECUTION] = 0.0
    """GPUs that Ray keeps for each trial, of which it uses one; 0.25 lets four trials share one. 0: trials see no GPU."""
    cluster_cpus: Annotated[int, EXECUTION] = 0
    """With --dry-run: CPUs of a cluster that has not been joined, for which the sweep is estimated; 0 is this machine."""
    cluster_gpus: Annotated[int, EXECUTION] = 0
    """With --cluster-cpus: its GPUs."""
    attempts: Annotated[int, Setting(positive=True, role="execution")] = 3
    """How often a trial that fails is tried before it is reported and left."""
    ray_address: Annotated[str, EXECUTION] = ""
    """Ray cluster to spread the trials over (--out must be on a disk its machines share); by default a local one is started."""
    protocol: Literal["impala", "machado"] = "impala"
    """Rules for Atari, as in `launch.py train`."""
    log_frames: FrameCount = 0
    """Frames between two lines of metrics; 0 chooses a hundredth of a trial, at most 50,000."""
    eval_episodes: int = 30
    """Whole games played when a trial ends; their mean is its final score. 0 takes the last 100 games of training instead."""
    checkpoint_minutes: Annotated[float, Setting(positive=True, role="execution")] = 5.0
    """Minutes between two checkpoints of a trial."""
    keep_checkpoints: Annotated[int, Setting(positive=True, role="execution")] = 2
    """Newest checkpoints of a trial to keep, besides the best."""
    agent: AgentConfig = field(default_factory=AgentConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    auxiliary: Any = field(default_factory=dict)
    """Settings of the tasks; each is for all the tasks that have it."""  # By name, or a dataclass of them.

    def __post_init__(self) -> None:
        check_bounds(self)
        for task in self.tasks:
            if twice := sorted(facts(task_type(task).config).keys() & facts(CompareConfig).keys()):
                raise ConfigError(f"{task} has a setting {flag(twice[0])}, which is a flag of compare already; rename it")
        if self.learner.learners > 1:
            raise ConfigError("--learners has no effect in a sweep, whose trials have one learner each")
        if (self.cluster_cpus or self.cluster_gpus) and not self.dry_run:
            raise ConfigError("--cluster-cpus and --cluster-gpus have no effect without --dry-run")
        if self.cluster_gpus and not self.cluster_cpus:
            raise ConfigError("--cluster-gpus needs --cluster-cpus")
        if self.gpus_per_trial and self.cores_per_trial == 1:
            raise ConfigError("--gpus-per-trial needs --cores-per-trial of 2 or more: a GPU learns, cores play")
        for task in self.tasks or ("none",):
            for settings in self.variants(task):
                self.trial("catch", task, self.first_seed, settings)

    def check_complete(self) -> None:
        """Raises ConfigError where something has no default and was not given."""
        for name in ("games", "tasks", "out"):
            if not getattr(self, name):
                raise ConfigError(f"--{name} is missing ({launch_command('compare', '--help')} explains every flag)")

    @property
    def pool(self) -> Literal["ray", "serial"]:
        """The pool of each trial."""
        return "serial" if self.cores_per_trial == 1 else "ray"

    @property
    def variations(self) -> tuple[Variation, ...]:
        return tuple(parse_variation(text, self.tasks) for text in self.vary)

    def variants(self, task: str) -> list[dict[str, Any]]:
        """The combinations of settings in which the task is trained."""
        return variants(self.variations, task, self.learner.optimiser)

    @property
    def optimisers(self) -> tuple[str, ...]:
        """Those of the trials."""
        trials = [settings for task in self.tasks for settings in self.variants(task)]
        return tuple(dict.fromkeys(settings.get("optimiser", self.learner.optimiser) for settings in trials))

    def task_settings(self, task: str) -> Any:
        """An instance of the task's Config with the settings that all its trials have."""
        kind = task_type(task)
        given = asdict(self.auxiliary) if is_dataclass(self.auxiliary) else self.auxiliary  # type: ignore[arg-type]
        return kind.config(**{name: value for name, value in given.items() if kind.has(name)})

    def trial(self, game: str, task: str, seed: int, settings: Mapping[str, Any] = MappingProxyType({})) -> TrainConfig:
        """The ordinary training config of one trial, without its directory; raises ConfigError where it cannot work."""
        config = TrainConfig(
            preset=self.preset,
            task=task,
            env=EnvConfig(game=game, protocol=self.protocol),
            agent=self.agent,
            learner=replace(self.learner, learners=1),
            auxiliary=self.task_settings(task),
            actors=ActorConfig(pool=self.pool),
            run=RunConfig(
                frames=self.frames,
                seed=seed,
                log_frames=self.log_frames,
                eval_episodes=self.eval_episodes,
                checkpoint_minutes=self.checkpoint_minutes,
                keep_checkpoints=self.keep_checkpoints,
            ),
        )
        return with_settings(config, settings)

    def identity(self) -> dict[str, Any]:
        """What makes it this sweep and no other, in the types of JSON; how and where it is run does not."""
        ours = facts(CompareConfig)
        values = {
            name: value
            for name, value in without_execution(asdict(replace(self, learner=replace(self.learner, learners=1)))).items()
            if name not in ours or ours[name].role != "execution"
        }
        values["auxiliary"] = {task: learning_part(self.task_settings(task)) for task in self.tasks}
        del values["vary"]
        if self.vary:
            values["vary"] = [variation.text for variation in self.variations]
        return values | {"games": list(self.games), "tasks": list(self.tasks), "pool": self.pool}


def learning_part(settings: Any) -> dict[str, Any]:
    """The settings of a task without those of execution."""
    known = facts(type(settings))
    return {name: value for name, value in asdict(settings).items() if known[name].role != "execution"}


COMPARE_PRESETS: dict[str, CompareConfig] = {
    "default": CompareConfig(),
    "paper": replace(
        CompareConfig(),
        preset="paper",
        games=("atari10",),
        tasks=("none", "reward_prediction", "pixel_control", "gvf", "reverse_gvf"),
        seeds=3,
        frames=PRESETS["paper"].run.frames,
        agent=PRESETS["paper"].agent,
        learner=PRESETS["paper"].learner,
    ),
}
