"""The studies of `launch.py reproduce` by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps

from configs.commands import ReproduceConfig
from configs.errors import RunError
from studies.reproduce.changed_game.study import reproduce_changed_game
from studies.reproduce.discovery import reproduce_discovery
from studies.reproduce.lambda_sweep import reproduce_lambda
from studies.reproduce.microdrone import reproduce_microdrone
from studies.reproduce.off_policy import reproduce_off_policy
from studies.reproduce.pagerank import reproduce_pagerank
from studies.reproduce.reacher import reproduce_reacher
from studies.reproduce.streams.study import reproduce_streams
from training.storage.files import explain

Study = Callable[[ReproduceConfig, threading.Event], str]


def _with_run_error(study: Study) -> Study:
    """The study with any OSError as a RunError of one line; matplotlib's figures raise OSError too."""

    @wraps(study)
    def run(config: ReproduceConfig, stop: threading.Event) -> str:
        try:
            return study(config, stop)
        except OSError as error:
            raise RunError(f"cannot go on in {config.out}: {explain(error)}; the same command continues") from None

    return run


STUDIES: dict[str, Study] = {
    "lambda": _with_run_error(reproduce_lambda),
    "microdrone": _with_run_error(reproduce_microdrone),
    "reacher": _with_run_error(reproduce_reacher),
    "off_policy": _with_run_error(reproduce_off_policy),
    "streams": _with_run_error(reproduce_streams),
    "pagerank": _with_run_error(reproduce_pagerank),
    "changed_game": _with_run_error(reproduce_changed_game),
    "discovery": _with_run_error(reproduce_discovery),
}
"""Each study writes its results to --out and returns its summary."""
