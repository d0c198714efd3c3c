"""Exact GVF and Reverse GVF answers to one question in every state of a grid game."""

from __future__ import annotations

import numpy as np

from envs.grid_games import Grid
from retrospective.finite_mdp import Array, FiniteMDP


def exact_answers(grid: Grid, policy: Array, cumulant: Array, discount: Array) -> tuple[Array, Array]:
    """GVF and Reverse GVF answers, each [S], of a question with cumulant and discount [S] under `policy` [S, A].

    They are the fixed points of the tasks `gvf` and `reverse_gvf` with unit-scale answers on an endless stream of games: the
    last state of a game is followed by the first of the next, and no return crosses the border. The time limit is modelled as
    truncation with probability 1/limit at every step, where the GVF bootstraps and the Reverse GVF restarts from 0. Without
    truncation, a policy that never ends a game would leave states that are never visited.
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
    """Transition probabilities [S, A, S], and the states in which games end."""
    states, actions = grid.next_state.shape
    flow = np.zeros((states, actions, states))
    flow[np.arange(states)[:, None], np.arange(actions), grid.next_state] = 1.0
    ends = np.unique(grid.next_state[grid.terminal])
    flow[ends] = _restart(grid)
    return flow, ends


def _restart(grid: Grid) -> Array:
    """Distribution [S] of the first state of a game."""
    distribution = np.zeros(len(grid.next_state))
    distribution[grid.initial_states] = 1 / len(grid.initial_states)
    return distribution
