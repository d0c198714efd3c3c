"""Settings of `launch.py evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from configs.errors import ConfigError


@dataclass(frozen=True)
class EvaluateConfig:
    """Play whole games with a trained agent and report their raw scores."""

    run_dir: str
    """Directory of the run."""
    episodes: int = 100
    """Games to play."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which weights to play with."""
    seed: int = 1000
    """Seed of the games and the actions."""
    game: str = ""
    """Only for runs of a game from a module of your own (`gym:MODULE:ID`): its name again, since to play it is to run the
    module, which a run directory must not decide."""
    video: bool = False
    """Also film a game, as an mp4 in the run's videos/."""
    json: bool = False
    """Print the result as JSON."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ConfigError(f"--episodes must be positive, not {self.episodes}")
        if self.seed < 0:
            raise ConfigError(f"--seed must not be negative, not {self.seed}")
