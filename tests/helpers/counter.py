"""An environment whose frames encode the game and the step, so that any mix-up of data shows."""

import gymnasium
import numpy as np


class Counter(gymnasium.Env):
    """The upper half of a frame holds the step, the lower half a random number of the game; the reward is the step.

    A game lasts 3 to 9 steps; games with an even number terminate, the others are truncated.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (40, 40), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.length = int(self.np_random.integers(1, 251)), int(self.np_random.integers(3, 10))
        self.step_count = 0
        return self._image(), {}

    def step(self, action):
        self.step_count += 1
        ended, even = self.step_count == self.length, self.number % 2 == 0
        return self._image(), float(self.step_count), ended and even, ended and not even, {}

    def _image(self):
        image = np.full((40, 40), self.step_count + 1, dtype=np.uint8)
        image[20:] = self.number
        return image


class Failing(Counter):
    """An environment that raises at its second step."""

    def step(self, action):
        if self.step_count == 1:
            raise RuntimeError("the joystick came off")
        return super().step(action)


gymnasium.register("Counter-v0", Counter)
gymnasium.register("Failing-v0", Failing)
