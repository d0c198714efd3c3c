"""Settings of `launch.py games`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GamesConfig:
    """List the games, with the published scores of those that have them."""

    json: bool = False
    """Print JSON instead of a table."""
