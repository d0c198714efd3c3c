"""Where Hindcast's code is: in a checkout, or installed among other packages."""

from __future__ import annotations

import os
import subprocess
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


def describe() -> str:
    """Name and version, and the commit if the code is in a checkout."""
    text = f"{NAME} {hindcast_version() or '(not installed)'}"
    return text if (known := commit()) is None else f"{text} (commit {known})"


def commit() -> str | None:
    """Of the checkout that the code is in; None for installed code, whatever repository it was installed into."""
    if not in_checkout() or _git("rev-parse", "--show-toplevel") != str(ROOT):
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None


def _git(*arguments: str) -> str:
    """What git prints in the directory of the code; nothing if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def installed_packages() -> list[Path]:
    """The directories of Hindcast's own packages; none where it is not known which they are."""
    try:
        names = (distribution(NAME).read_text("top_level.txt") or "").split()
    except PackageNotFoundError:
        return []
    return [ROOT / name for name in names if (ROOT / name / "__init__.py").is_file()]
