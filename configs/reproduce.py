"""Settings of `launch.py reproduce`."""

from __future__ import annotations

from dataclasses import dataclass

from configs.errors import ConfigError
from configs.settings import check_bounds


@dataclass(frozen=True)
class ReproduceConfig:
    """Make a figure of the paper again: data, picture and a summary in words. A rerun continues where it stopped."""

    out: str
    """Directory for the results."""
    runs: int = 0
    """Independent runs; 0 for the study's own number, which is 30 as in the paper, and 10 seeds for discovery."""
    seed: int = 0
    """Seed from which every run's own is derived."""
    ray_address: str = ""
    """Ray cluster to spread the runs over; by default a local one is started and ended."""

    def runs_or(self, default: int) -> int:
        return self.runs or default

    def __post_init__(self) -> None:
        if self.runs < 0 or self.runs == 1:
            raise ConfigError(f"--runs must be at least 2 for a standard error, not {self.runs}")
        check_bounds(self)
