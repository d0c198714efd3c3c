"""Commands as they are shown to people: quoted, and found whatever PATH says, so that they can be pasted in this directory."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

LAUNCH = Path(__file__).resolve().parent.parent / "launch.py"
INSTALLED = "hindcast"
"""Name of the installed command."""


def program_name() -> str:
    """What messages begin with: the installed command's name if this process was called by it."""
    return INSTALLED if Path(sys.argv[0]).name == INSTALLED else LAUNCH.name


def launch_command(*arguments: str) -> str:
    """A command of ours, called as this process was: by the installed command or by the interpreter."""
    called = Path(sys.argv[0])
    if called.name == INSTALLED and os.access(called, os.X_OK):
        return shlex.join([_program(called.absolute()), *arguments])
    return shlex.join([_program(Path(sys.executable)), _near(LAUNCH), *arguments])


def tensorboard_command(directory: Path) -> str:
    """TensorBoard of this interpreter's environment, on a directory."""
    script = Path(sys.executable).with_name("tensorboard")
    program = [_program(script)] if script.exists() else [_program(Path(sys.executable)), "-m", "tensorboard.main"]
    return shlex.join([*program, "--logdir", str(directory)])


def _program(path: Path) -> str:
    """Its bare name where the shell finds it by that."""
    found = shutil.which(path.name)
    if found is not None and Path(found).absolute() == path:
        return path.name
    near = _near(path)
    return near if os.sep in near else os.path.join(os.curdir, near)


def _near(path: Path) -> str:
    """Relative to the current directory if it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
