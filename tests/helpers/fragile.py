"""An environment that raises after some steps: `gym:tests.helpers.fragile:Fragile-v0`."""

import os
from pathlib import Path

import gymnasium

from tests.helpers.counter import Counter

SOUND = "HINDCAST_TEST_SOUND"
"""Environment variable with the path of a file. The first process to reach STEPS writes its id there and never raises."""
STEPS = 60
"""Few enough that the failures of the slot are not yet cleared."""


class Fragile(Counter):
    played = 0

    def step(self, action):
        self.played += 1
        if self.played > STEPS and not is_sound():
            raise RuntimeError("the joystick came off")
        return super().step(action)


def is_sound():
    if SOUND not in os.environ:
        return False
    path = Path(os.environ[SOUND])
    try:
        with path.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return path.read_text() == str(os.getpid())
    return True


gymnasium.register("Fragile-v0", Fragile)
