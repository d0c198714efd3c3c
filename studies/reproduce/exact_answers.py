"""The same question looked at in both directions: exact answers of a GVF and a Reverse GVF in the states of a grid."""

from __future__ import annotations

import numpy as np

from envs.grid_games import Grid
from retrospective.finite_mdp import Array, FiniteMDP


def exact_answers(grid: Grid, policy: Array, cumulant: Array, discount: Array) -> tuple[Array, Array]:
    """What will follow and what must have come before, each [S], for a question's cumulant and discount [S].

    They are what the tasks `gvf` and `reverse_gvf` regress on, with answers of unit size, if `policy` [S, A] plays game after
    game: the state in which a game ends is followed by the first of the next, and nothing is carried over. The time limit is
    taken for a chance of 1/limit at every step. What follows is bootstrapped there, as if the game went on; what came before
    is forgotten. Without it a policy that never ends a game would leave states that are never seen.
    """
    flow, ends = _transitions(grid)
    entered, left = discount[None, None, :], discount[:, None, None]
    inside = np.ones_like(flow)
    inside[ends] = 0.0
    ending = np.zeros_like(flow)
    ending[:, :, ends] = 1.0
    forward = FiniteMDP(flow, inside * cumulant * (1 - entered), inside * (1 - ending) * entered)
    cut = inside * _restart(grid) / grid.time_limit
    moved = inside * flow * (1 - 1 / grid.time_limit)
    cut_flow = moved + cut + (1 - inside) * flow
    carried = np.divide(moved, cut_flow, out=np.zeros_like(flow), where=cut_flow > 0)
    backward = FiniteMDP(cut_flow, carried * cumulant * (1 - left), carried * left)
    return forward.gvf(policy), backward.reverse_gvf(policy)


def _transitions(grid: Grid) -> tuple[Array, np.ndarray]:
    """[S, A, S], and the states in which games end."""
    states, actions = grid.next_state.shape
    flow = np.zeros((states, actions, states))
    flow[np.arange(states)[:, None], np.arange(actions), grid.next_state] = 1.0
    ends = np.unique(grid.next_state[grid.terminal])
    flow[ends] = _restart(grid)
    return flow, ends


def _restart(grid: Grid) -> Array:
    """[S], where games begin."""
    chance = np.zeros(len(grid.next_state))
    chance[grid.initial_states] = 1 / len(grid.initial_states)
    return chance
