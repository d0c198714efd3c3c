"""An environment that kills its process, once: `gym:tests.helpers.dying:Dying-v0`."""

import os
import signal
from pathlib import Path

import gymnasium

from tests.helpers.counter import Counter

MARK = "HINDCAST_TEST_MARK"
"""Environment variable with the path of a file that is created when it happens."""
STEPS = 40


class Dying(Counter):
    played = 0

    def step(self, action):
        type(self).played += 1
        mark = Path(os.environ[MARK])
        if self.played > STEPS and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


gymnasium.register("Dying-v0", Dying)
