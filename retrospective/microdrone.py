"""The microdrone MDP (Zhang et al. 2020, figure 1): a drone circles between four locations and recharges at L4.

A clockwise move (action 0, L1 -> L2 -> L3 -> L4 -> L1) costs an energy of 2, a counter-clockwise one (action 1) an energy of 1.
With probability 0.01 a move fails and costs nothing. The discount is 0 on leaving the charging station L4, else 1: the reverse
return is the energy used since the last charge.
"""

from __future__ import annotations

import numpy as np

from retrospective.finite_mdp import Array, FiniteMDP

NUM_LOCATIONS = 4
CHARGER = 3
CLOCKWISE_COST, COUNTER_COST = 2.0, 1.0
FAILURE = 0.01


def microdrone() -> FiniteMDP:
    """The MDP, with states L1 to L4."""
    transition = np.zeros((NUM_LOCATIONS, 2, NUM_LOCATIONS))
    reward = np.zeros_like(transition)
    discount = np.ones_like(transition)
    for location in range(NUM_LOCATIONS):
        for action, (move, cost) in enumerate(((1, CLOCKWISE_COST), (-1, COUNTER_COST))):
            destination = (location + move) % NUM_LOCATIONS
            transition[location, action, destination] = 1 - FAILURE
            transition[location, action, location] = FAILURE
            reward[location, action, destination] = cost
    discount[CHARGER] = 0.0
    return FiniteMDP(transition, reward, discount)


def clockwise_policy(clockwise: float) -> Array:
    """Policy [S, 2] that moves clockwise with probability `clockwise` in every state."""
    return np.tile([clockwise, 1 - clockwise], (NUM_LOCATIONS, 1))
