"""Where Hindcast's code is: in a checkout, or installed among other packages."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

NAME = "hindcast"
ROOT = Path(__file__).resolve().parent.parent
"""Holds the packages, and whatever else is installed beside them."""


@cache
def _project() -> dict[str, Any]:
    """The `project` table of a checkout's pyproject.toml; empty if the code is not in a checkout of Hindcast."""
    try:
        found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        return found if found["name"] == NAME else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def in_checkout() -> bool:
    return bool(_project())


def hindcast_version() -> str | None:
    """The version of the code that runs: a checkout's own, else that of the installation."""
    try:
        return _project().get("version") or distribution(NAME).version
    except PackageNotFoundError:
        return None


def installed_packages() -> list[Path]:
    """The directories of Hindcast's own packages; none where it is not known which they are."""
    try:
        names = (distribution(NAME).read_text("top_level.txt") or "").split()
    except PackageNotFoundError:
        return []
    return [ROOT / name for name in names if (ROOT / name / "__init__.py").is_file()]
