"""The one list of what a trajectory carries.

What the stream reports per step, allocation in the rollout, trajectories, batches, their transfer to a device and the
meta-gradient's window in checkpoints all follow from `StepFields`. A field that the stream can compute is one line there;
a field that the actor computes is one line there and its value in `RolloutWorker.rollout`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_type_hints

import numpy as np

if TYPE_CHECKING:
    from envs.stream import EnvSpec

Array = TypeVar("Array")
"""np.ndarray in trajectories, Tensor in batches."""


@dataclass(frozen=True)
class Transition:
    """What the stream knows of one step of N environments; every array is [N, ...]."""

    frames: np.ndarray
    """Newest frame after the step."""
    reward: np.ndarray
    valid: np.ndarray
    """False where the action was ignored because the game had already ended."""
    terminated: np.ndarray
    ended: np.ndarray
    """Terminated or truncated."""
    life_lost: np.ndarray


@dataclass(frozen=True)
class Field:
    """Layout and origin of one array."""

    dtype: type
    shape: Callable[["EnvSpec"], tuple[int, ...]] = lambda spec: ()
    """Of one step of one environment; fields of the start are copies of the actor's state and have its shape."""
    time: Literal["start", "step", "observation"] = "step"
    """start: [N, ...], before the first step. step: [T, N, ...]. observation: [T + 1, N, ...]."""
    compute: Callable[[Transition], np.ndarray] | None = None
    """Its value from a transition; None if the actor supplies it."""

    @property
    def env_axis(self) -> int:
        return 0 if self.time == "start" else 1

    def allocate(self, spec: "EnvSpec", unroll: int, num_envs: int) -> np.ndarray:
        return np.empty((unroll + (self.time == "observation"), num_envs, *self.shape(spec)), self.dtype)


@dataclass(frozen=True)
class StepFields(Generic[Array]):
    """N environments over T steps, time-major; `x[t]` belongs to observation, action or transition t."""

    stack: Annotated[Array, Field(np.uint8, time="start")]
    """[N, S * C, H, W], the first observation with its history."""
    frames: Annotated[Array, Field(np.uint8, lambda spec: spec.frame_shape, compute=lambda step: step.frames)]
    """[T, N, C, H, W], the frame that followed each action."""
    first: Annotated[
        Array, Field(np.bool_, time="observation", compute=lambda step: ~step.valid | (step.life_lost & ~step.ended))
    ]
    """[T + 1, N], the observation opens a learning episode."""
    action: Annotated[Array, Field(np.int64)]
    """[T, N]"""
    reward: Annotated[Array, Field(np.float32, compute=lambda step: np.where(step.valid, step.reward, 0.0))]
    """[T, N], raw reward of the action."""
    discount: Annotated[Array, Field(np.float32, compute=lambda step: step.valid & ~step.terminated & ~step.life_lost)]
    """[T, N], 0 where the action terminated its learning episode or was ignored, else 1; the learner multiplies by its own."""
    valid: Annotated[Array, Field(np.bool_, compute=lambda step: step.valid)]
    """[T, N], False where the action was ignored because the game had ended."""
    logits: Annotated[Array, Field(np.float32, lambda spec: (spec.num_actions,))]
    """[T, N, A], of the behaviour policy."""
    core_state: Annotated[Array, Field(np.float32, time="start")]
    """[N, R], recurrent state before the first observation; R is 0 without an LSTM."""


def _declared() -> dict[str, Field]:
    hints: dict[str, Any] = get_type_hints(StepFields, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


FIELDS = _declared()
"""By name, in the order of declaration."""
COMPUTED = {name: field.compute for name, field in FIELDS.items() if field.compute is not None}
"""How the stream computes its fields."""
