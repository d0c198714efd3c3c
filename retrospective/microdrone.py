"""The microdrone (Zhang et al. 2020, figure 1): it circles between four places and recharges at L4.

Clockwise (action 0) L1 -> L2 -> L3 -> L4 -> L1 costs an energy of 2 a move, counter-clockwise (action 1) 1; a move fails with
probability 0.01 and costs nothing. Leaving L4, the charging station, it forgets what it has used.
"""

from __future__ import annotations

import numpy as np

from retrospective.finite_mdp import Array, FiniteMDP

NUM_PLACES = 4
CHARGER = 3
CLOCKWISE_COST, COUNTER_COST = 2.0, 1.0
FAILURE = 0.01


def microdrone() -> FiniteMDP:
    transition = np.zeros((NUM_PLACES, 2, NUM_PLACES))
    reward = np.zeros_like(transition)
    discount = np.ones_like(transition)
    for place in range(NUM_PLACES):
        for action, (move, cost) in enumerate(((1, CLOCKWISE_COST), (-1, COUNTER_COST))):
            destination = (place + move) % NUM_PLACES
            transition[place, action, destination] = 1 - FAILURE
            transition[place, action, place] = FAILURE
            reward[place, action, destination] = cost
    discount[CHARGER] = 0.0
    return FiniteMDP(transition, reward, discount)


def clockwise_policy(clockwise: float) -> Array:
    """The policy that goes clockwise with the same probability everywhere."""
    return np.tile([clockwise, 1 - clockwise], (NUM_PLACES, 1))
