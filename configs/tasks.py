"""Settings of the auxiliary tasks, and what else the command line knows of a task without the code that learns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from configs.errors import ConfigError
from configs.plugins import resolve
from configs.settings import Setting, facts

TorsoName = Literal["shallow", "nature", "deep"]
MOST_RECORDED = 200
"""Most settings of a task that is not built in, and most characters of each, that are read from a file."""


class TaskInterface:
    """The class attributes of a task that the command line reads; `agents.tasks.AuxiliaryTask` has the rest."""

    Config: ClassVar[Any]
    """A frozen dataclass. Its fields are flags, with their docstrings as help texts, and are saved in config.json."""
    learns_questions: ClassVar[bool] = False
    """Whether phi follows the meta-gradient; otherwise phi keeps its initial value."""
    draws: ClassVar[bool] = False
    """Whether it has pictures for TensorBoard; set for every class that overrides `pictures`."""


@dataclass(frozen=True)
class NoConfig:
    """Of tasks without settings."""


@dataclass(frozen=True)
class RewardPredictionConfig:
    reward_prediction_weight: float = 0.1
    """Weight of reward prediction's loss, which is a cross-entropy (or half a squared error) per step."""
    reward_prediction_target: Literal["sign", "value"] = "sign"
    """sign: classify the reward as negative, zero or positive. value: regress the clipped reward."""


@dataclass(frozen=True)
class PixelControlConfig:
    pixel_control_weight: float = 0.001
    """Weight of pixel control's loss, which is summed over its 400 cells."""
    pixel_control_discount: Annotated[float, Setting(below=1)] = 0.9
    """Discount of the pixel changes."""


@dataclass(frozen=True)
class QuestionConfig:
    """Of tasks with a question network, meta-learned or random."""

    num_questions: Annotated[int, Setting(positive=True, most=2**14)] = 32
    """Questions of a GVF or Reverse GVF task (d)."""
    question_input: Literal["state", "future"] = "state"
    """What the question network sees: the state, or the frames that follow it, within its episode and unroll."""
    question_torso: TorsoName = "shallow"
    """Torso of the question network, which shares nothing with the agent's."""
    normalise_cumulants: bool = False
    """Normalise the pre-activation of each cumulant over the batch, so that the meta-gradient cannot make it constant;
    lowered scores on puddleworld, with random questions too (docs/results/discovery.md)."""
    scale_cumulants: bool = True
    """Multiply each cumulant by 1 - discount, so that answers lie in (-1, 1) for every horizon."""
    answer_lambda: Annotated[float, Setting(most=1)] = 0.9
    """Lambda of the answers' lambda-returns: 0 bootstraps after one step, 1 at the end of the unroll."""
    answer_weight: float = 0.1
    """Weight of the loss of the answers: half the squared error, summed over questions, over the root of their number."""


QUESTION_TRAVEL = 0.15
"""Learning rate of the questions times number of question updates: how far Adam may move a parameter of theirs in a run."""
CLIPPED_TRAVEL = 0.1 * QUESTION_TRAVEL
"""The same with a clip of the meta-gradient, where Adam's steps do not shrink after the first ones."""


@dataclass(frozen=True)
class MetaConfig:
    """Settings of the meta-gradient, to be inherited by the Config of every task that learns its questions."""

    meta_interval: Annotated[int, Setting(positive=True, most=2**12)] = 10
    """Agent updates that the meta-gradient is backpropagated through (K): the last ones before a question update."""
    meta_period: Annotated[int, Setting(most=2**20)] = 0
    """Agent updates per question update (M), at least --meta-interval; 0 takes --meta-interval, as in the paper. Updates before
    the last K cost a plain update plus a forward pass of the question network."""
    meta_gradient: Literal["exact", "first_order"] = "exact"
    """exact: includes second derivatives. first_order: omits the dependence of each gradient on the parameters."""
    meta_cosine: Annotated[bool, Setting(role="execution")] = False
    """Compute both meta-gradients and log their cosine similarity; slower."""
    meta_optimiser: Literal["adam", "rmsprop", "sgd"] = "adam"
    """Optimiser of the question network."""
    meta_learning_rate: float = 0.0
    """Learning rate of the question network. 0: 0.015 / number of question updates, at least 1e-5 (10M frames with the other
    defaults) and at most 1e-4 (in pilots answers did not keep up with larger ones); ten times as much if --meta-clip-norm is
    0."""
    meta_clip_norm: float = 1.0
    """Clip the meta-gradient to this norm; 0 does not clip. The first meta-gradients of a run can be a thousand times larger
    than later ones; without a clip they dominate Adam's second moment, and later question updates are small."""
    meta_memory_gb: Annotated[float, Setting(role="execution")] = 4.0
    """Memory budget for the graphs of the K updates. Beyond it graphs are recomputed in the backward pass: slower, with memory
    constant in K."""

    @property
    def question_period(self) -> int:
        """M"""
        return self.meta_period or self.meta_interval

    def question_learning_rate(self, updates: float) -> float:
        """Of a run with this many updates of the agent."""
        travel = CLIPPED_TRAVEL if self.meta_clip_norm else QUESTION_TRAVEL
        share = self.question_period / max(updates, 1)
        return self.meta_learning_rate or travel * min(max(share, 1 / 1500), 1 / 150)


@dataclass(frozen=True)
class DiscoveryConfig(MetaConfig, QuestionConfig):
    """Of tasks whose questions are meta-learned."""


@dataclass(frozen=True)
class TaskType:
    """What the command line knows of a task."""

    config: Any
    """Its Config."""
    learns_questions: bool = False
    draws: bool = False
    trains_torso: bool = True
    """Whether its loss trains the torso."""

    def has(self, setting: str) -> bool:
        return setting in facts(self.config)


BUILT_IN_TASKS: dict[str, TaskType] = {
    "none": TaskType(NoConfig, trains_torso=False),
    "reward_prediction": TaskType(RewardPredictionConfig),
    "pixel_control": TaskType(PixelControlConfig, draws=True),
    "gvf": TaskType(DiscoveryConfig, learns_questions=True, draws=True),
    "reverse_gvf": TaskType(DiscoveryConfig, learns_questions=True, draws=True),
    "random_gvf": TaskType(QuestionConfig, draws=True),
    "random_reverse_gvf": TaskType(QuestionConfig, draws=True),
}
"""In the order of the report; agents/tasks holds one class for each."""
TASK_CHOICES = f"{{{','.join(BUILT_IN_TASKS)},PACKAGE.MODULE:CLASS}}"


def task_type(name: str) -> TaskType:
    """The type of a task that the user named, whose module is imported unless the task is built in.

    Raises ConfigError if there is no such task.
    """
    found = resolve(name, BUILT_IN_TASKS, "task")
    if isinstance(found, TaskType) and name in BUILT_IN_TASKS:
        return found
    if not isinstance(found, type) or not issubclass(found, TaskInterface):
        raise ConfigError(f"{name} is not a task: it must be a subclass of agents.tasks.AuxiliaryTask")
    config: Any = getattr(found, "Config", None)
    _check_config(config, name)
    if found.learns_questions and not issubclass(config, MetaConfig):
        raise ConfigError(f"{name} learns its questions, so its Config must inherit from configs.tasks.MetaConfig")
    return TaskType(config, found.learns_questions, found.draws)


def _check_config(kind: Any, name: str) -> None:
    """Raise ConfigError if the class cannot be a task's Config."""
    if not isinstance(kind, type) or not is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigError(f"the Config of {name} must be a frozen dataclass")
    try:
        hints = get_type_hints(kind)
    except Exception as error:  # Annotations are the user's code.
        raise ConfigError(f"the Config of {name} has types that cannot be read: {error}") from None
    for item in fields(kind):
        if item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(f"the field '{item.name}' of {name}'s Config has no default")
        if item.name.startswith("_") or item.name in ("help", "h"):
            raise ConfigError(f"the field '{item.name}' of {name}'s Config cannot be a flag")
        if not _is_plain(hints[item.name]):
            raise ConfigError(
                f"the field '{item.name}' of {name}'s Config must be a bool, int, float, str or a Literal of strings"
            )


def _is_plain(hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return all(isinstance(choice, str) for choice in get_args(hint))
    return hint in (bool, int, float, str)


def joined_config(tasks: Sequence[str]) -> Any:
    """A dataclass with the settings of all the tasks, for the flags of a command that takes several."""
    kinds = list(dict.fromkeys(task_type(task).config for task in tasks))
    leaves = [kind for kind in kinds if not any(other is not kind and issubclass(other, kind) for other in kinds)]
    for name in {name for kind in leaves for name in facts(kind)}:
        if len({get_type_hints(kind)[name] for kind in leaves if name in facts(kind)}) > 1:
            raise ConfigError(f"--{name.replace('_', '-')} has another type in each of {', '.join(tasks)}")
    try:
        return dataclass(frozen=True)(type("TaskFlags", tuple(leaves), {"__annotations__": {}}))
    except TypeError as error:
        raise ConfigError(f"the settings of {', '.join(tasks)} cannot be flags of one command: {error}") from None


def recorded_settings(values: Any, where: str) -> dict[str, Any]:
    """Settings, read from a file, of a task whose code is not imported; raises ConfigError where they are no settings."""
    if not isinstance(values, Mapping) or len(values) > MOST_RECORDED:
        raise ConfigError(f"{where} is not a table of settings")
    for name, value in values.items():
        if not isinstance(name, str) or not name.isidentifier() or len(name) > MOST_RECORDED:
            raise ConfigError(f"{where} has unknown settings: {repr(name)[:MOST_RECORDED]}")
        if not _is_plain_value(value):
            raise ConfigError(f"{where}.{name} cannot be {repr(value)[:MOST_RECORDED]}")
    return dict(values)


def _is_plain_value(value: Any) -> bool:
    if type(value) is str:
        return len(value) <= MOST_RECORDED
    return type(value) is bool or (type(value) in (int, float) and -(2.0**63) < value < 2.0**63)
