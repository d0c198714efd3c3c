"""Grid worlds observed as pixels: `collect_objects` and `puddleworld`.

Dynamics are tables over states and actions: N games step by table lookup, and value iteration gives the optimal score exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from envs.stream import EnvSpec, Games, RawStep

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Changes of row and column of the actions up, right, down, left."""
AGENT, GOAL, FIRST_OBJECT, PUDDLE, CARRYING_AGENT, SECOND_OBJECT, WALL = 255, 200, 160, 120, 110, 90, 45
"""Brightness in images."""


@dataclass(frozen=True)
class Grid:
    """A deterministic MDP with S states and A actions, and an image of each state."""

    next_state: NDArray[np.int64]
    """[S, A]"""
    reward: NDArray[np.float64]
    """[S, A]"""
    terminal: NDArray[np.bool_]
    """[S, A]: the action terminates the game."""
    images: NDArray[np.uint8]
    """[S, 1, H, W]"""
    initial_states: NDArray[np.int64]
    """Initial states, uniformly distributed."""
    cells: NDArray[np.int64]
    """[S, 2]: row and column of the agent."""
    phases: NDArray[np.int64]
    """[S]: the rest of the state, such as which objects are left."""
    time_limit: int
    """Steps after which a game is truncated."""

    def optimal_values(self) -> NDArray[np.float64]:
        """Optimal undiscounted return [S] within the time limit, by value iteration."""
        values = np.zeros(len(self.next_state))
        for _ in range(self.time_limit):
            values = (self.reward + np.where(self.terminal, 0.0, values[self.next_state])).max(-1)
        return values

    @property
    def optimal_score(self) -> float:
        """Optimal value, averaged over the initial states."""
        return float(self.optimal_values()[self.initial_states].mean())


class GridGames(Games):
    """N games of one grid world, stepped together."""

    def __init__(self, grid: Grid, num_envs: int):
        self.num_envs = num_envs
        self.grid = grid
        self.spec = EnvSpec(len(MOVES), grid.images.shape[1:], stack=1, frames_per_step=1)
        self._state = np.zeros(num_envs, dtype=np.int64)
        self._steps = np.zeros(num_envs, dtype=np.int64)

    def reset(self, mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        for env in np.flatnonzero(mask):
            self._state[env] = np.random.default_rng(int(seeds[env])).choice(self.grid.initial_states)
        self._steps[mask] = 0
        return self.grid.images[self._state]

    def step(self, actions: np.ndarray, running: np.ndarray) -> RawStep:
        reward, terminal = self.grid.reward[self._state, actions], self.grid.terminal[self._state, actions]
        self._state = np.where(running, self.grid.next_state[self._state, actions], self._state)
        self._steps += running
        truncated = ~terminal & (self._steps >= self.grid.time_limit)
        never = np.zeros(self.num_envs, dtype=bool)
        return RawStep(self.grid.images[self._state], reward, terminated=terminal, truncated=truncated, life_lost=never)

    def close(self) -> None:
        pass


FOUR_ROOMS = (
    "###########",
    "#b   #    #",
    "#    #    #",
    "#         #",
    "#    #    #",
    "## ##### ##",
    "#    #    #",
    "#    #    #",
    "#         #",
    "#a   #    #",
    "###########",
)
STEP_COST, OBJECT_REWARD = 0.01, 0.5
BOTH_LEFT, SECOND_LEFT = 0, 1


@cache
def collect_objects() -> Grid:
    """Four rooms with two objects, after Veeriah et al. 2019: `a` gives 0.5, then `b` gives 0.5 and terminates the game.

    Every step costs 0.01. `b` cannot be collected before `a`. The objects have fixed positions; the agent starts in a random
    cell, in half of the games with `a` already collected, so that the way to `b` is learnt without finding `a` by chance. It
    is drawn darker while it carries `a`: the image determines the state.
    """
    plan = np.array([list(row) for row in FOUR_ROOMS])
    free: list[tuple[int, int]] = [(row, column) for row, column in np.argwhere(plan != "#").tolist()]
    places = {name: next(cell for cell in free if plan[cell] == name) for name in "ab"}
    states = [(phase, row, column) for phase in (BOTH_LEFT, SECOND_LEFT) for row, column in free]
    states.remove((BOTH_LEFT, *places["a"]))
    number = {state: i for i, state in enumerate(states)}
    next_state, reward, terminal = _tables(len(states))
    for (phase, row, column), s in number.items():
        for a, (down, right) in enumerate(MOVES):
            cell = (row + down, column + right)
            if plan[cell] == "#":
                cell = (row, column)
            reward[s, a] = -STEP_COST
            after = phase
            if cell == places["a"] and phase == BOTH_LEFT:
                after = SECOND_LEFT
                reward[s, a] += OBJECT_REWARD
            elif cell == places["b"] and phase == SECOND_LEFT:
                terminal[s, a] = True
                reward[s, a] += OBJECT_REWARD
            next_state[s, a] = number[after, *cell]
    images = np.zeros((len(states), *plan.shape), dtype=np.uint8)
    for (phase, row, column), s in number.items():
        images[s][plan == "#"] = WALL
        images[s][places["b"]] = SECOND_OBJECT
        if phase == BOTH_LEFT:
            images[s][places["a"]] = FIRST_OBJECT
        images[s][row, column] = AGENT if phase == BOTH_LEFT else CARRYING_AGENT
    initial_states = [s for (_, row, column), s in number.items() if plan[row, column] == " "]
    return _grid(states, next_state, reward, terminal, images, initial_states, scale=4, time_limit=80)


PUDDLE_SIDE = 10
"""Cells along each side of the unit square."""
PUDDLES = (((0.1, 0.75), (0.45, 0.75)), ((0.45, 0.4), (0.45, 0.8)))
"""End points (x, y) of the centre line of each puddle."""
PUDDLE_RADIUS = 0.1
"""Distance from the centre line to the edge of a puddle."""
PUDDLE_STEP_COST, PUDDLE_DEPTH_COST = 0.02, 2.0


@cache
def puddleworld() -> Grid:
    """Puddle world (Sutton 1996) on a 10 x 10 grid.

    A step costs 0.02, plus twice the depth in a puddle. That is a quarter of Sutton's penalty relative to the step cost: with
    his, agents learn to avoid the puddles before they find the goal, and then never find it. The goal is the corner at
    (1, 1); the agent starts in any other cell.
    """
    side = PUDDLE_SIDE
    states = [(0, row, column) for row in range(side) for column in range(side)]
    number = {(row, column): i for i, (_, row, column) in enumerate(states)}
    depth = np.array([[puddle_depth(*_point(row, column)) for column in range(side)] for row in range(side)])
    goal = np.array([[sum(_point(row, column)) > 1.85 for column in range(side)] for row in range(side)])
    next_state, reward, terminal = _tables(len(states))
    for (row, column), s in number.items():
        for a, (down, right) in enumerate(MOVES):
            cell = (min(max(row + down, 0), side - 1), min(max(column + right, 0), side - 1))
            next_state[s, a] = number[cell]
            reward[s, a] = -PUDDLE_STEP_COST - PUDDLE_DEPTH_COST * depth[cell]
            terminal[s, a] = goal[cell]
    background = np.where(goal, GOAL, np.round(PUDDLE * depth / PUDDLE_RADIUS)).astype(np.uint8)
    images = np.tile(background, (len(states), 1, 1))
    for (row, column), s in number.items():
        images[s][row, column] = AGENT
    initial_states = [s for (row, column), s in number.items() if not goal[row, column]]
    return _grid(states, next_state, reward, terminal, images, initial_states, scale=4, time_limit=100)


def _point(row: int, column: int) -> tuple[float, float]:
    """x and y of a cell's centre in the unit square; row 0 is the top."""
    return (column + 0.5) / PUDDLE_SIDE, 1 - (row + 0.5) / PUDDLE_SIDE


def puddle_depth(x: float, y: float) -> float:
    """Distance to the edge of each puddle that contains the point, summed over puddles; 0 outside."""
    total = 0.0
    for (x0, y0), (x1, y1) in PUDDLES:
        nearest = min(max(x, min(x0, x1)), max(x0, x1)), min(max(y, min(y0, y1)), max(y0, y1))
        total += max(0.0, PUDDLE_RADIUS - float(np.hypot(x - nearest[0], y - nearest[1])))
    return total


def _tables(count: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    shape = (count, len(MOVES))
    return np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape, dtype=bool)


def _grid(
    states: list[tuple[int, int, int]],
    next_state: NDArray[np.int64],
    reward: NDArray[np.float64],
    terminal: NDArray[np.bool_],
    images: NDArray[np.uint8],
    initial_states: list[int],
    scale: int,
    time_limit: int,
) -> Grid:
    """The grid with images enlarged by `scale`; torsos need images of about 40 x 40."""
    table = np.array(states)
    large = images.repeat(scale, axis=1).repeat(scale, axis=2)[:, None]
    return Grid(next_state, reward, terminal, large, np.array(initial_states), table[:, 1:], table[:, 0], time_limit)


GRIDS = {"collect_objects": collect_objects, "puddleworld": puddleworld}
