"""Everything that defines a training run. Every field is a flag of `launch.py train`; its docstring is the help text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from configs.errors import ConfigError
from configs.frames import FrameCount
from configs.settings import POSITIVE, Setting, build, check_bounds, facts, flag, flatten

TaskName = Literal[
    "none", "reward_prediction", "pixel_control", "gvf", "reverse_gvf", "random_gvf", "random_reverse_gvf"
]  # fmt: skip
"""Names of the auxiliary tasks; agents/tasks holds one class for each."""
DISCOVERY_TASKS: tuple[TaskName, ...] = ("gvf", "reverse_gvf")
QUESTION_TASKS: tuple[TaskName, ...] = (*DISCOVERY_TASKS, "random_gvf", "random_reverse_gvf")
"""Tasks with a question network, meta-learned or random."""
TRAINING_TASKS: tuple[TaskName, ...] = ("reward_prediction", "pixel_control", *QUESTION_TASKS)
"""Tasks whose loss trains the torso."""
EXECUTION = Setting(role="execution")
MEASUREMENT = Setting(role="measurement")
MOST_STEPS = 2**22
"""Most environment steps in memory at once: their frames alone are 30 GB on Atari."""


@dataclass(frozen=True)
class EnvConfig:
    game: Annotated[str, Setting(role="identity")] = "pong"
    """An Atari game, `catch`, `collect_objects`, `puddleworld`, or `gym:ID` for a Gymnasium environment (`launch.py games`
    lists them)."""
    protocol: Annotated[Literal["impala", "machado"], Setting(role="identity")] = "impala"
    """Rules for Atari. impala: no-op starts, minimal actions, a lost life ends the learning episode. machado: sticky
    actions 0.25, all 18 actions, whole games."""


@dataclass(frozen=True)
class AgentConfig:
    torso: Literal["shallow", "nature", "deep"] = "nature"
    """Convolutional network: IMPALA's small one, DQN's, or IMPALA's residual one."""
    lstm_size: Annotated[int, Setting(most=2**14)] = 0
    """Width of an LSTM between torso and heads; 0 for none."""


@dataclass(frozen=True)
class LearnerConfig:
    unroll: Annotated[int, Setting(positive=True, most=2**16)] = 20
    """Steps in a trajectory (T)."""
    batch_size: Annotated[int, Setting(positive=True, most=2**16)] = 8
    """Trajectories in an update (B)."""
    discount: Annotated[float, Setting(below=1)] = 0.99
    """Discount of the main task."""
    reward_clip: float = 1.0
    """Rewards are clipped to plus or minus this for learning; 0 leaves them raw. Logged scores are always raw."""
    learning_rate: Annotated[float, POSITIVE] = 6e-4
    """Initial learning rate; annealed linearly to 0 at the last frame."""
    warm_up_updates: int = 0
    """Updates of linear learning-rate warm-up; RMSProp's first steps can be ten times too large while its second moment
    is still an initial guess."""
    optimiser: Literal["rmsprop", "adam"] = "rmsprop"
    """Optimiser of the agent and the auxiliary heads. rmsprop: IMPALA's. adam: with bias correction."""
    rmsprop_decay: Annotated[float, Setting(below=1, optimiser="rmsprop")] = 0.99
    """Decay rate of RMSProp's second moment."""
    rmsprop_eps: Annotated[float, Setting(positive=True, optimiser="rmsprop")] = 1e-4
    """Added to RMSProp's second moment, inside the root."""
    rmsprop_initial_moment: Annotated[float, Setting(optimiser="rmsprop")] = 1e-3
    """RMSProp's second moment before the first update. TensorFlow starts at 1, which makes the first thousand updates tiny,
    PyTorch at 0, which makes the first ones ten times too large; 0.001 is close to its typical value in training."""
    adam_beta1: Annotated[float, Setting(below=1, optimiser="adam")] = 0.9
    """Decay rate of Adam's first moment."""
    adam_beta2: Annotated[float, Setting(below=1, optimiser="adam")] = 0.999
    """Decay rate of Adam's second moment."""
    adam_eps: Annotated[float, Setting(positive=True, optimiser="adam")] = 1e-4
    """Added to Adam's second moment, inside the root: the square of the usual epsilon, which stands outside. Parameters whose
    gradient is far below its root move less than the learning rate, and the meta-gradient through a step grows with 1 over its
    root."""
    clip_norm: Annotated[float, POSITIVE] = 40.0
    """Gradients are clipped to this global norm (of the loss summed over the batch)."""
    value_cost: float = 0.5
    """Weight of the value loss."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    rho_clip: Annotated[float, POSITIVE] = 1.0
    """V-trace's rho-bar: clips importance weights in the temporal differences and the policy gradient."""
    c_clip: Annotated[float, POSITIVE] = 1.0
    """V-trace's c-bar: clips the trace coefficients."""
    vtrace_lambda: Annotated[float, Setting(most=1)] = 0.95
    """V-trace's lambda: values below 1 reduce the variance of long returns and add bias from the value function."""
    learners: Annotated[int, Setting(most=2**10)] = 0
    """Learner processes that share each batch and sum their gradients, each with a pool of its own; 0 chooses from the costs of
    an update and of a rollout (1 with --pool serial)."""
    learner_timeout: Annotated[float, EXECUTION] = 60.0
    """Seconds without an answer after which a learner process counts as hung, and all of them start again from the newest
    checkpoint."""
    learner_resource: Annotated[str, EXECUTION] = ""
    """Custom resource of a Ray cluster of which every learner but the first takes 1; it places them on nodes that have it."""
    device: Annotated[Literal["auto", "cpu", "cuda"], EXECUTION] = "auto"
    """Where the learner computes; auto takes a GPU if there is one."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the learner's torso. bf16: bfloat16 by autocast, faster on GPUs that have it; heads, losses, optimiser,
    weights and actors stay float32. Not available for tasks with meta-learned questions."""
    learner_threads: Annotated[int, Setting(most=2**10, role="execution", ray_pool_only=True)] = 0
    """Torch threads of the learner; 0 chooses from the number of cores."""
    compile: Annotated[bool, EXECUTION] = False
    """Compile the learner's torso with torch.compile; not available for tasks with meta-learned questions."""

    @property
    def ranks(self) -> int:
        """Number of learners, 1 where none was chosen."""
        return self.learners or 1


@dataclass(frozen=True)
class TaskConfig:
    stop_main_gradient: Annotated[bool, Setting(tasks=TRAINING_TASKS)] = False
    """Stop the gradient of the main task at the torso, which is then trained by the auxiliary task alone."""
    reward_prediction_weight: Annotated[float, Setting(tasks=("reward_prediction",))] = 0.1
    """Weight of reward prediction's loss, which is a cross-entropy (or half a squared error) per step."""
    reward_prediction_target: Annotated[Literal["sign", "value"], Setting(tasks=("reward_prediction",))] = "sign"
    """sign: classify the reward as negative, zero or positive. value: regress the clipped reward."""
    pixel_control_weight: Annotated[float, Setting(tasks=("pixel_control",))] = 0.001
    """Weight of pixel control's loss, which is summed over its 400 cells."""
    pixel_control_discount: Annotated[float, Setting(below=1, tasks=("pixel_control",))] = 0.9
    """Discount of the pixel changes."""
    num_questions: Annotated[int, Setting(positive=True, most=2**14, tasks=QUESTION_TASKS)] = 32
    """Questions of a GVF or Reverse GVF task (d)."""
    question_input: Annotated[Literal["state", "future"], Setting(tasks=QUESTION_TASKS)] = "state"
    """What the question network sees: the state, or the frames that follow it, within its episode and unroll."""
    question_torso: Annotated[Literal["shallow", "nature", "deep"], Setting(tasks=QUESTION_TASKS)] = "shallow"
    """Torso of the question network, which shares nothing with the agent's."""
    normalise_cumulants: Annotated[bool, Setting(tasks=QUESTION_TASKS)] = False
    """Normalise the pre-activation of each cumulant over the batch, so that the meta-gradient cannot make it constant; slows
    down discovery (docs/results/discovery.md)."""
    scale_cumulants: Annotated[bool, Setting(tasks=QUESTION_TASKS)] = True
    """Multiply each cumulant by 1 - discount, so that answers lie in (-1, 1) for every horizon."""
    answer_lambda: Annotated[float, Setting(most=1, tasks=QUESTION_TASKS)] = 0.9
    """Lambda of the answers' lambda-returns: 0 bootstraps after one step, 1 at the end of the unroll."""
    answer_weight: Annotated[float, Setting(tasks=QUESTION_TASKS)] = 0.1
    """Weight of the loss of the answers: half the squared error, summed over questions, over the root of their number."""
    meta_interval: Annotated[int, Setting(positive=True, most=2**12, tasks=DISCOVERY_TASKS)] = 10
    """Agent updates that the meta-gradient is backpropagated through (K): the last ones before a question update."""
    meta_period: Annotated[int, Setting(most=2**20, tasks=DISCOVERY_TASKS)] = 0
    """Agent updates per question update (M), at least --meta-interval; 0 takes --meta-interval, as in the paper. Updates before
    the last K cost a plain update plus a forward pass of the question network."""
    meta_gradient: Annotated[Literal["exact", "first_order"], Setting(tasks=DISCOVERY_TASKS)] = "exact"
    """exact: includes second derivatives. first_order: omits the dependence of each gradient on the parameters."""
    meta_cosine: Annotated[bool, Setting(role="execution", tasks=DISCOVERY_TASKS)] = False
    """Compute both meta-gradients and log their cosine similarity; slower."""
    meta_optimiser: Annotated[Literal["adam", "rmsprop", "sgd"], Setting(tasks=DISCOVERY_TASKS)] = "adam"
    """Optimiser of the question network."""
    meta_learning_rate: Annotated[float, Setting(positive=True, tasks=DISCOVERY_TASKS)] = 1e-4
    """Learning rate of the question network."""
    meta_memory_gb: Annotated[float, Setting(role="execution", tasks=DISCOVERY_TASKS)] = 4.0
    """Memory budget for the graphs of the K updates. Beyond it graphs are recomputed in the backward pass: slower, with memory
    constant in K."""

    @property
    def question_period(self) -> int:
        """M"""
        return self.meta_period or self.meta_interval


@dataclass(frozen=True)
class ActorConfig:
    pool: Literal["auto", "ray", "serial"] = "auto"
    """ray: actors in separate processes. serial: rollouts in the learners' processes; bit-for-bit reproducible. auto: the one
    that should be faster, from the costs of an update and of a rollout."""
    num_actors: Annotated[int, Setting(most=2**14, role="execution", ray_pool_only=True)] = 0
    """Actor processes; 0 chooses from the number of cores, with policy lag kept low."""
    envs_per_actor: Annotated[int, Setting(most=2**12, role="execution")] = 0
    """Environments per actor, or per learner with --pool serial; 0 chooses from the batch size."""
    in_flight: Annotated[int, Setting(positive=True, most=2**8, role="execution", ray_pool_only=True)] = 2
    """Rollout requests in flight per actor: 1 minimises policy lag, 2 keeps every actor busy."""
    pin_actors: Annotated[bool, Setting(role="execution", ray_pool_only=True)] = True
    """Pin each actor to its own core if a local run uses every core; turn it off beside other heavy processes."""
    actor_timeout: Annotated[float, Setting(positive=True, role="execution", ray_pool_only=True)] = 120.0
    """Seconds without a trajectory after which an actor is restarted; a new actor has five minutes to start."""
    ray_address: Annotated[str, Setting(role="execution", ray_pool_only=True)] = ""
    """Address of a running Ray cluster to join; empty starts a local one for this run. To be given again on --resume."""
    cluster_timeout: Annotated[float, Setting(role="execution", ray_pool_only=True)] = 60.0
    """Seconds to wait for free CPUs of a cluster, and for nodes that its autoscaler adds."""


@dataclass(frozen=True)
class RunConfig:
    frames: Annotated[FrameCount, Setting(positive=True, most=10**15, may_extend=True)] = 10_000_000
    """Environment frames to train for (action repeat counted); 10M, 1e7 and 10_000_000 are the same."""
    seed: Annotated[int, Setting(most=2**63 - 1, role="identity")] = 1
    """Seed of the network, the games and the actions."""
    run_dir: Annotated[str, EXECUTION] = ""
    """Directory of the run; by default runs/GAME-TASK-seedN."""
    resume: Annotated[bool, EXECUTION] = False
    """Continue the run in --run-dir from its newest checkpoint, with the settings it was started with."""
    log_frames: Annotated[FrameCount, MEASUREMENT] = 0
    """Frames between two lines of metrics; 0 chooses a hundredth of the run, at most 50,000."""
    checkpoint_minutes: Annotated[float, Setting(positive=True, role="execution")] = 5.0
    """Minutes between two checkpoints."""
    picture_frames: Annotated[FrameCount, Setting(role="execution", tasks=("pixel_control", *QUESTION_TASKS))] = 0
    """Frames between two figures of the auxiliary task; 0 chooses a twentieth of the run, at least
    100,000. One more is drawn at the end. With meta-learned questions, drawing waits for the next question update."""
    keep_checkpoints: Annotated[int, Setting(positive=True, most=10**6, role="execution")] = 3
    """Newest checkpoints to keep, besides the best."""
    eval_episodes: Annotated[int, MEASUREMENT] = 30
    """Whole games played when the training ends; 0 for none."""


@dataclass(frozen=True)
class TrainConfig:
    """Train an IMPALA agent, with an auxiliary task if one is asked for."""

    preset: Annotated[Literal["default", "paper"], Setting(role="identity")] = "default"
    """Defaults of all other flags. default: for a small machine. paper: IMPALA's hyperparameters and residual network, 200M
    frames."""
    task: Annotated[TaskName, Setting(role="identity")] = "none"
    """Auxiliary task trained together with the main task."""
    env: EnvConfig = field(default_factory=EnvConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    auxiliary: TaskConfig = field(default_factory=TaskConfig)
    actors: ActorConfig = field(default_factory=ActorConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        check_bounds(self)
        frames_per_update = self.learner.unroll * self.learner.batch_size
        for what, steps in {
            "--unroll times --batch-size": frames_per_update,
            "--unroll times --envs-per-actor": self.learner.unroll * self.actors.envs_per_actor,
            "--unroll times --batch-size times --meta-interval": frames_per_update * self.auxiliary.meta_interval,
        }.items():
            if steps > MOST_STEPS:
                raise ConfigError(f"{what} must be at most {MOST_STEPS}, not {steps}")
        if self.learner.batch_size % self.learner.ranks:
            raise ConfigError(
                f"--batch-size {self.learner.batch_size} cannot be shared by --learners {self.learner.learners}:"
                " choose a batch that divides by the number of learners"
            )
        if self.auxiliary.question_period < self.auxiliary.meta_interval:
            raise ConfigError(
                f"--meta-period {self.auxiliary.meta_period} is less than --meta-interval {self.auxiliary.meta_interval}:"
                " the updates that the meta-gradient looks through must fit between two changes of the questions"
            )
        if not self.run.resume:  # Else the batch is the run's, and `check_resumes` knows it.
            self._check_frames()

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

    def without_ray_address(self) -> TrainConfig:
        """The same config on a local Ray: which cluster to trust is for the command line to say, not for a file."""
        return replace(self, actors=replace(self.actors, ray_address=""))

    def check_resumes(self, started: TrainConfig) -> None:
        """Raises ConfigError if a run begun with `started` cannot be continued with this config."""
        known = facts(TrainConfig)
        for (path, ours), (_, theirs) in zip(flatten(self), flatten(started), strict=True):
            if ours != theirs and not known[path[-1]].may_change_on_resume:
                raise ConfigError(f"the run was started with {flag(path[-1])} {theirs}; it cannot resume with {ours}")
        ours, theirs = self.actors.envs_per_actor, started.actors.envs_per_actor
        if started.actors.pool == "serial" and ours != theirs:
            raise ConfigError(f"a serial run that was started with --envs-per-actor {theirs} cannot resume with {ours}")
        self._check_frames()

    @staticmethod
    def from_dict(values: dict[str, Any]) -> TrainConfig:
        """Inverse of `to_dict`; raises ConfigError where the values are not a config's."""
        return build(TrainConfig, values, "config")


def concerns(setting: str, task: str) -> bool:
    """Whether a setting makes any difference to what is learnt with a task.

    Stopping the main gradient does so even with `none`: nothing trains the torso then, which is a control, not a task.
    """
    users = facts(TrainConfig)[setting].tasks
    return users is None or setting == "stop_main_gradient" or task in users


def learning_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings, by name, that alter what is learnt by the config's task."""
    known = facts(TrainConfig)
    values = {path[-1]: value for path, value in flatten(config)}
    return {
        name: value
        for name, value in values.items()
        if known[name].role == "learning"
        and concerns(name, config.task)
        and known[name].optimiser in (None, config.learner.optimiser)
    }


def without_execution(values: dict[str, Any]) -> dict[str, Any]:
    """A table of settings, nested or not, without those of how and where a run is executed."""
    known = facts(TrainConfig)
    kept = {name: value for name, value in values.items() if name not in known or known[name].role != "execution"}
    return {name: without_execution(value) if isinstance(value, dict) else value for name, value in kept.items()}


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
            vtrace_lambda=1.0,
        ),
        run=RunConfig(frames=200_000_000),
    ),
}
