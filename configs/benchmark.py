"""Settings of `launch.py benchmark`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from configs.errors import ConfigError


@dataclass(frozen=True)
class BenchmarkConfig:
    """Measure emulation, inference and learning alone, then real training, and how much of the machine it uses."""

    game: str = "pong"
    """Game to measure with."""
    torso: Literal["shallow", "nature", "deep"] = "nature"
    """Network to measure with."""
    unroll: int = 20
    """Steps in a trajectory."""
    batch_size: int = 32
    """Trajectories in an update."""
    seconds: float = 30.0
    """How long real training is measured, after its warm-up; each part alone takes a third of it, half before, half after."""
    tasks: bool = True
    """Measure the auxiliary tasks as well, one learner step each."""
    json: bool = False
    """Print JSON instead of a table."""

    def __post_init__(self) -> None:
        for name in ("unroll", "batch_size", "seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"--{name.replace('_', '-')} must be positive, not {getattr(self, name)}")
