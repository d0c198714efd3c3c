"""Settings of `launch.py report`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from configs.errors import ConfigError
from configs.shell import launch_command


@dataclass(frozen=True)
class ReportConfig:
    """Make one page of the trials in one or more directories, finished or not: report.html, its figures and its numbers."""

    directories: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Sweeps made by `launch.py compare`, or directories of runs, or runs."""
    out: str = ""
    """Where the report is written; by default into the first directory."""
    task: str | None = None
    """The task that the others are compared with; by default reverse_gvf if it is there, else the last but `none`. Or one
    agent as the report names it, such as "gvf (learning_rate 3e-4)", which is then compared with every other."""

    def check_complete(self) -> None:
        if not self.directories:
            raise ConfigError(f"no directory was named ({launch_command('report', '--help')} explains every flag)")
