"""Everything that defines a training run. Every field is a flag of `launch.py train`; its docstring is the help text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from configs.errors import ConfigError
from configs.frames import FrameCount

TaskName = Literal[
    "none", "reward_prediction", "pixel_control", "gvf", "reverse_gvf", "random_gvf", "random_reverse_gvf"
]  # fmt: skip
"""Names of the auxiliary tasks; agents/tasks holds one class for each."""
LONGEST_QUOTE = 200
"""Characters of a file's nonsense that an error repeats."""
META_LEARNED: tuple[TaskName, ...] = ("gvf", "reverse_gvf")
"""Tasks whose questions are learnt by meta-gradient."""
QUESTION_TASKS: tuple[TaskName, ...] = (*META_LEARNED, "random_gvf", "random_reverse_gvf")
"""Tasks with a question network, learnt or random."""
SETTINGS_OF_TASKS: dict[str, tuple[TaskName, ...]] = {
    "stop_main_gradient": ("reward_prediction", "pixel_control", *QUESTION_TASKS),
    "picture_frames": ("pixel_control", *QUESTION_TASKS),
    **dict.fromkeys(("reward_prediction_weight", "reward_prediction_target"), ("reward_prediction",)),
    **dict.fromkeys(("pixel_control_weight", "pixel_control_discount"), ("pixel_control",)),
    **dict.fromkeys(
        (
            "num_questions", "question_input", "question_torso", "standard_cumulants", "unit_answers", "answer_lambda",
            "answer_weight",
        ),
        QUESTION_TASKS,
    ),
    **dict.fromkeys(
        (
            "meta_interval", "meta_period", "meta_gradient", "meta_cosine", "meta_optimiser", "meta_learning_rate",
            "meta_memory_gb",
        ),
        META_LEARNED,
    ),
}  # fmt: skip
"""The tasks that use a setting, by its name; a setting that is not here is used whatever the task. All of `TaskConfig` is."""
SETTINGS_OF_RAY_POOL = (
    "num_actors", "envs_per_actor", "in_flight", "pin_actors", "actor_timeout", "ray_address", "learner_threads",
)  # fmt: skip
"""Settings that the serial pool does not use."""


@dataclass(frozen=True)
class EnvConfig:
    game: str = "pong"
    """An Atari game, `catch`, `collect_objects`, `puddleworld`, or `gym:ID` for a Gymnasium environment (`launch.py games`
    lists them)."""
    protocol: Literal["impala", "machado"] = "impala"
    """Rules for Atari. impala: no-op starts, minimal actions, a lost life ends the learning episode. machado: sticky
    actions 0.25, all 18 actions, whole games."""


@dataclass(frozen=True)
class AgentConfig:
    torso: Literal["shallow", "nature", "deep"] = "nature"
    """Convolutional network: IMPALA's small one, DQN's, or IMPALA's residual one."""
    core_size: int = 0
    """Width of an LSTM between torso and heads; 0 for none."""


@dataclass(frozen=True)
class LearnerConfig:
    unroll: int = 20
    """Steps in a trajectory (T)."""
    batch_size: int = 8
    """Trajectories in an update (B)."""
    discount: float = 0.99
    """Discount of the main task."""
    reward_clip: float = 1.0
    """Rewards are clipped to plus or minus this for learning; 0 leaves them raw. Logged scores are always raw."""
    learning_rate: float = 6e-4
    """At the first frame; falls linearly to 0 at the last."""
    warm_up_updates: int = 0
    """Updates over which the learning rate first rises from 0: RMSProp's first steps, made before its second moment knows how
    large gradients are, can be ten times too large."""
    rmsprop_decay: float = 0.99
    """Decay of RMSProp's second moment."""
    rmsprop_eps: float = 1e-4
    """Added to RMSProp's second moment, inside the root."""
    rmsprop_initial_moment: float = 1e-3
    """RMSProp's second moment before the first update. TensorFlow starts at 1, which makes the first thousand updates tiny,
    PyTorch at 0, which makes the first ones ten times too large; 0.001 is about where it settles."""
    clip_norm: float = 40.0
    """Largest global norm of the gradient of the summed loss."""
    value_cost: float = 0.5
    """Weight of the value loss."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    rho_clip: float = 1.0
    """V-trace's clip of the importance weight in the temporal difference and the policy gradient."""
    c_clip: float = 1.0
    """V-trace's clip of the trace."""
    trace_lambda: float = 0.95
    """V-trace's lambda: below 1 it trades the variance of long returns for the bias of the value."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the learner computes; auto takes a GPU if there is one."""
    learner_threads: int = 0
    """Torch threads of the learner; 0 chooses from the number of cores."""
    compile: bool = False
    """Compiles the learner's network with torch.compile; not for tasks whose questions are meta-learned."""


@dataclass(frozen=True)
class TaskConfig:
    stop_main_gradient: bool = False
    """Main-task gradients stop at the torso, so that it learns from the auxiliary task alone."""
    reward_prediction_weight: float = 0.1
    """Weight of reward prediction's loss, which is a cross-entropy (or half a squared error) per step."""
    reward_prediction_target: Literal["sign", "value"] = "sign"
    """sign: classify the reward as negative, zero or positive. value: regress the clipped reward."""
    pixel_control_weight: float = 0.001
    """Weight of pixel control's loss, which is summed over its 400 cells."""
    pixel_control_discount: float = 0.9
    """Discount of the pixel changes."""
    num_questions: int = 32
    """Questions of a GVF or Reverse GVF task (d)."""
    question_input: Literal["state", "future"] = "state"
    """What the question network sees: the state, or the frames that follow it, within its episode and unroll."""
    question_torso: Literal["shallow", "nature", "deep"] = "shallow"
    """Torso of the question network, which shares nothing with the agent's."""
    standard_cumulants: bool = False
    """Standardises what goes into each cumulant over the batch, so that the meta-gradient cannot make it constant; useful
    questions are then found later (docs/discovery.md)."""
    unit_answers: bool = True
    """Scales each cumulant by one minus the discount beside it, so that all answers lie in (-1, 1) whatever the horizon."""
    answer_lambda: float = 0.9
    """Lambda of the answers' multi-step targets: 0 bootstraps after one step, 1 at the end of the unroll."""
    answer_weight: float = 0.1
    """Weight of the answers' loss: half the squared errors, summed over questions, divided by the root of their number."""
    meta_interval: int = 10
    """Updates of the agent that the meta-gradient is taken through (K): the last ones before the questions change."""
    meta_period: int = 0
    """Updates of the agent from one change of the questions to the next (M), at least --meta-interval; 0 takes --meta-interval,
    as the paper does. Outside the last K of them an update costs what a plain one does plus asking the questions."""
    meta_gradient: Literal["exact", "first_order"] = "exact"
    """exact: through everything that the updates do. first_order: as if a gradient did not depend on the parameters."""
    meta_cosine: bool = False
    """Computes both meta-gradients and logs the cosine between them; slower."""
    meta_optimiser: Literal["adam", "rmsprop", "sgd"] = "adam"
    """Optimiser of the question network."""
    meta_learning_rate: float = 1e-4
    """Learning rate of the question network."""
    meta_memory_gb: float = 4.0
    """Memory for the graphs of the K updates. Within it they are kept; beyond it each is recomputed when needed: slower, memory
    flat in K."""

    @property
    def question_period(self) -> int:
        """M"""
        return self.meta_period or self.meta_interval


@dataclass(frozen=True)
class ActorConfig:
    pool: Literal["ray", "serial"] = "ray"
    """ray: actors in processes of their own. serial: in this process, slower, reproducible bit for bit."""
    num_actors: int = 0
    """Actor processes; 0 chooses from the number of cores, as many as leave the data fresh."""
    envs_per_actor: int = 0
    """Games that an actor steps together; 0 chooses from the batch size."""
    in_flight: int = 2
    """Rollout calls under way per actor: 1 gives the freshest data, 2 keeps every actor busy."""
    pin_actors: bool = True
    """Keeps each actor on a core of its own where a local run takes every core; better off beside other heavy work."""
    actor_timeout: float = 120.0
    """Seconds without a trajectory after which an actor is taken for hung and replaced; a new one has five minutes to begin."""
    ray_address: str = ""
    """Address of a running Ray cluster to join; empty starts a local one for this run. To be given again on --resume."""


@dataclass(frozen=True)
class RunConfig:
    frames: FrameCount = 10_000_000
    """Environment frames to train for (action repeat counted); 10M, 1e7 and 10_000_000 are the same."""
    seed: int = 1
    """Seed of the network, the games and the actions."""
    run_dir: str = ""
    """Directory of the run; by default runs/GAME-TASK-seedN."""
    resume: bool = False
    """Continue the run in --run-dir from its newest checkpoint, with the settings it was started with."""
    log_frames: FrameCount = 0
    """Frames between two lines of metrics; 0 chooses a hundredth of the run, at most 50,000."""
    checkpoint_minutes: float = 5.0
    """Minutes between two checkpoints."""
    picture_frames: FrameCount = 0
    """Frames between two pictures of the auxiliary task; 0 chooses a twentieth of the run, at least
    100,000. One more is made at the end. Where questions are learnt, the next update of theirs is waited for."""
    keep_checkpoints: int = 3
    """Newest checkpoints to keep, besides the best."""
    eval_episodes: int = 30
    """Whole games played when the training ends; 0 for none."""


@dataclass(frozen=True)
class TrainConfig:
    """Train an IMPALA agent, with an auxiliary task if one is asked for."""

    preset: Literal["default", "paper"] = "default"
    """Values that the other flags start from. default: learns on a small machine. paper: IMPALA's,
    residual network and all, for 200M frames."""
    task: TaskName = "none"
    """Auxiliary task that helps to shape the torso."""
    env: EnvConfig = field(default_factory=EnvConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    auxiliary: TaskConfig = field(default_factory=TaskConfig)
    actors: ActorConfig = field(default_factory=ActorConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        _check_numbers(self)
        frames_per_update = self.learner.unroll * self.learner.batch_size
        for what, steps in {
            "--unroll times --batch-size": frames_per_update,
            "--unroll times --envs-per-actor": self.learner.unroll * self.actors.envs_per_actor,
            "--unroll times --batch-size times --meta-interval": frames_per_update * self.auxiliary.meta_interval,
        }.items():
            if steps > _MOST_STEPS:
                raise ConfigError(f"{what} must be at most {_MOST_STEPS}, not {steps}")
        if self.auxiliary.question_period < self.auxiliary.meta_interval:
            raise ConfigError(
                f"--meta-period {self.auxiliary.meta_period} is less than --meta-interval {self.auxiliary.meta_interval}:"
                " the updates that the meta-gradient looks through must fit between two changes of the questions"
            )
        if not self.run.resume:  # Else the batch is the run's, and `check_resumes` knows it.
            self._check_frames()
        if self.learner.compile and self.task in META_LEARNED:
            raise ConfigError(f"--compile has no second derivatives, which --task {self.task} needs for its meta-gradient")

    def _check_frames(self) -> None:
        batch = self.learner.unroll * self.learner.batch_size
        if self.run.frames < batch:
            raise ConfigError(
                f"--frames {self.run.frames} is less than one batch of {batch} steps (--unroll times --batch-size)"
            )

    @property
    def run_path(self) -> Path:
        name = self.env.game.replace("gym:", "").replace("/", "-")
        return Path(self.run.run_dir or f"runs/{name}-{self.task}-seed{self.run.seed}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def with_run(self, **changes: Any) -> TrainConfig:
        """The same config with some fields of `run` changed."""
        return replace(self, run=replace(self.run, **changes))

    def apart_from_its_cluster(self) -> TrainConfig:
        """The same config on a local Ray: which cluster to trust is for the command line to say, not for a file."""
        return replace(self, actors=replace(self.actors, ray_address=""))

    def check_resumes(self, started: TrainConfig) -> None:
        """Raises ConfigError if a run begun with `started` cannot be continued with this config."""
        ours, theirs = (
            {key: value for key, value in _flatten(config.to_dict()) if key[-1] not in _RESUMABLE} for config in (self, started)
        )
        for key in ours:
            if ours[key] != theirs[key]:
                flag = key[-1].replace("_", "-")
                raise ConfigError(f"the run was started with --{flag} {theirs[key]}; it cannot resume with {ours[key]}")
        self._check_frames()

    @staticmethod
    def from_dict(values: dict[str, Any]) -> TrainConfig:
        """Inverse of `to_dict`; raises ConfigError where the values are not a config's."""
        return _build(TrainConfig, values, "config")


_POSITIVE = {
    "frames", "unroll", "batch_size", "learning_rate", "clip_norm", "rho_clip", "c_clip", "in_flight",
    "checkpoint_minutes", "keep_checkpoints", "rmsprop_eps", "num_questions", "meta_interval", "meta_learning_rate",
    "actor_timeout",
}  # fmt: skip
EXECUTION = frozenset({
    "run_dir", "resume", "picture_frames", "checkpoint_minutes", "keep_checkpoints", "num_actors", "envs_per_actor",
    "in_flight", "pin_actors", "actor_timeout", "ray_address", "device", "learner_threads", "compile", "meta_memory_gb",
    "meta_cosine",
})  # fmt: skip
"""Settings of how and where a run is executed. Every other one alters what is learnt, or what is recorded of it."""
MEASUREMENT = frozenset({"log_frames", "eval_episodes"})
"""Settings of what is recorded of the learning."""
_RESUMABLE = EXECUTION | MEASUREMENT | {"frames"}
"""What may change when a run is resumed: nothing that alters what is learnt, except for the length of the run itself."""
_IDENTITY = frozenset({"preset", "task", "game", "protocol", "seed"})
"""What a trial is called by; a preset is no more than the settings it stands for."""


def concerns(setting: str, task: str) -> bool:
    """Whether a setting makes any difference to what is learnt with a task.

    Stopping the main gradient does so even with `none`: nothing trains the torso then, which is a control, not a task.
    """
    return setting not in SETTINGS_OF_TASKS or setting == "stop_main_gradient" or task in SETTINGS_OF_TASKS[setting]


def learning_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings, by name, that alter what is learnt by the config's task, without game, protocol, task and seed."""
    values = {path[-1]: value for path, value in _flatten(config.to_dict())}
    ignored = EXECUTION | MEASUREMENT | _IDENTITY
    return {name: value for name, value in values.items() if name not in ignored and concerns(name, config.task)}


def setting_text(value: Any) -> str:
    """A setting's value as one would type it, and short: 3e-4, 0.1, 10_000_000, true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        digits, exponent = f"{Decimal(repr(value)).normalize():e}".split("e")
        return min(repr(value).removesuffix(".0"), f"{digits}e{int(exponent)}", key=len)
    return str(value)


def without_execution(values: dict[str, Any]) -> dict[str, Any]:
    """A table of settings, nested or not, without those of `EXECUTION`."""
    kept = {name: value for name, value in values.items() if name not in EXECUTION}
    return {name: without_execution(value) if isinstance(value, dict) else value for name, value in kept.items()}


_FRACTION = {"discount", "rmsprop_decay", "pixel_control_discount"}
_CLOSED_FRACTION = {"trace_lambda", "answer_lambda"}
_AT_MOST = {
    "frames": 10**15, "seed": 2**63 - 1, "unroll": 2**16, "batch_size": 2**16, "core_size": 2**14, "num_questions": 2**14,
    "meta_interval": 2**12, "meta_period": 2**20, "num_actors": 2**14, "envs_per_actor": 2**12, "in_flight": 2**8,
    "learner_threads": 2**10, "keep_checkpoints": 10**6,
}  # fmt: skip
"""Far beyond use; a config from elsewhere cannot ask for more memory or processes than any machine has."""
_MOST_STEPS = 2**22
"""In memory at once: their frames alone are 30 GB in Atari."""


def _flatten(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, (*path, name))
        else:
            yield (*path, name), value


def _check_numbers(config: Any) -> None:
    for item in fields(config):
        value = getattr(config, item.name)
        flag = "--" + item.name.replace("_", "-")
        if is_dataclass(value):
            _check_numbers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if not math.isfinite(value):
                raise ConfigError(f"{flag} must be a finite number, not {value}")
            if item.name in _POSITIVE and value <= 0:
                raise ConfigError(f"{flag} must be positive, not {value}")
            if item.name in _FRACTION and not 0 <= value < 1:
                raise ConfigError(f"{flag} must lie in [0, 1), not {value}")
            if item.name in _CLOSED_FRACTION and not 0 <= value <= 1:
                raise ConfigError(f"{flag} must lie in [0, 1], not {value}")
            if value < 0:
                raise ConfigError(f"{flag} must be at least 0, not {value}")
            if value > _AT_MOST.get(item.name, math.inf):
                raise ConfigError(f"{flag} must be at most {_AT_MOST[item.name]}, not {value}")


def _build(kind: Any, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise ConfigError(f"{where} is not a table of settings")
    hints = get_type_hints(kind)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ConfigError(f"{where} has unknown settings: {', '.join(map(repr, unknown))[:LONGEST_QUOTE]}")
    arguments = {}
    for name, value in values.items():
        hint = hints[name]
        if is_dataclass(hint):
            arguments[name] = _build(hint, value, f"{where}.{name}")
        elif _fits(value, hint):
            arguments[name] = value
        else:
            raise ConfigError(f"{where}.{name} cannot be {repr(value)[:LONGEST_QUOTE]}")
    return kind(**arguments)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    return type(value) is hint or (hint is float and type(value) is int)


PRESETS: dict[str, TrainConfig] = {
    "default": TrainConfig(),
    "paper": TrainConfig(
        preset="paper",
        agent=AgentConfig(torso="deep"),
        learner=LearnerConfig(
            unroll=20,
            batch_size=32,
            learning_rate=6e-4,
            rmsprop_decay=0.99,
            rmsprop_eps=0.01,
            rmsprop_initial_moment=1.0,
            clip_norm=40.0,
            trace_lambda=1.0,
        ),
        run=RunConfig(frames=200_000_000),
    ),
}
