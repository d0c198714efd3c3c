"""The studies of `launch.py reproduce` by name."""

from __future__ import annotations

import threading
from collections.abc import Callable

from configs.reproduce import ReproduceConfig
from studies.reproduce_discovery import reproduce_discovery
from studies.reproduce_lambda import reproduce_lambda
from studies.reproduce_microdrone import reproduce_microdrone
from studies.reproduce_reacher import reproduce_reacher

STUDIES: dict[str, Callable[[ReproduceConfig, threading.Event], str]] = {
    "lambda": reproduce_lambda,
    "microdrone": reproduce_microdrone,
    "reacher": reproduce_reacher,
    "discovery": reproduce_discovery,
}
"""Each writes its results and returns a summary in words."""
