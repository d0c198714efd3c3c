"""A game that breaks after a while: `gym:tests.fragile:Fragile-v0`."""

import os
from pathlib import Path

import gymnasium

from tests.counter import Counter

SOUND = "HINDCAST_TEST_SOUND"
"""Names, if set, the file with the number of the only process in which it does not break: the first that would have."""
STEPS = 60
"""Few enough for an actor not to be trusted yet when it breaks."""


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
