"""Settings of `launch.py benchmark`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from configs.settings import POSITIVE, check_bounds


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
    """Measure the auxiliary tasks as well, one learner step each."""
    json: bool = False
    """Print JSON instead of a table."""

    def __post_init__(self) -> None:
        check_bounds(self)
