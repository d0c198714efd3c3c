"""Settings of `launch.py evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from configs.errors import ConfigError
from configs.frames import parse_frames
from configs.settings import POSITIVE, check_bounds


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
    """Only for runs of a game from a module of your own (`gym:MODULE:ID`): its name again, since to play it is to run the
    module, which a run directory must not decide."""
    video: bool = False
    """Also film a game, as an mp4 in the run's videos/."""
    json: bool = False
    """Print the result as JSON."""

    def __post_init__(self) -> None:
        check_bounds(self)
        self.checkpoint_frame()

    def checkpoint_frame(self) -> int | None:
        """The frame that --checkpoint names, or None for the newest and the best."""
        if self.checkpoint in ("newest", "best"):
            return None
        try:
            return parse_frames(self.checkpoint)
        except ValueError:
            raise ConfigError(f"--checkpoint must be newest, best or a frame, not {self.checkpoint!r}") from None
