"""PageRank (Page et al. 1998) as a Reverse GVF of a random surfer.

The rank r = a P^T r + (1 - a) q, with the links P, the damping a and the teleport distribution q, is the closed form of a
Reverse GVF without the division by the visiting distribution d: r = d v. A surfer clicks a link with probability 1 - jump and
jumps to a uniformly random page otherwise. A click has discount a / (1 - jump) and reward 0. A jump to page s has discount 0
and reward (1 - a) N q(s) / jump, so that the expected cumulant on page s is (1 - a) q(s), which is (1 - a) / N for PageRank.
Other teleport distributions are other cumulants of the same stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from retrospective.finite_mdp import Array, FiniteMDP


def link_matrix(adjacency: ArrayLike, dangling: ArrayLike | None = None) -> Array:
    """Transition matrix P [N, N] of clicks: links by weight; a page without links leads to `dangling`, by default anywhere."""
    weights = np.asarray(adjacency, dtype=np.float64)
    if weights.size == 0:
        raise ValueError("the graph is empty: it has no pages to rank")
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise ValueError(f"adjacency must be [pages, pages], not {list(weights.shape)}")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("weights of links must be finite and not negative")
    totals = weights.sum(-1, keepdims=True)
    patch = distribution(dangling, len(weights))
    return np.where(totals > 0, weights / np.where(totals > 0, totals, 1.0), patch)


def distribution(weights: ArrayLike | None, num_pages: int) -> Array:
    """Weights [N] as a distribution; None is uniform."""
    found = np.ones(num_pages) if weights is None else np.asarray(weights, dtype=np.float64)
    if found.shape != (num_pages,):
        raise ValueError(f"a distribution over {num_pages} pages is needed, not weights {list(found.shape)}")
    if not np.isfinite(found).all() or (found < 0).any() or found.sum() == 0:
        raise ValueError("weights of pages must be finite, not negative and not all 0")
    return found / found.sum()


def pagerank(
    adjacency: ArrayLike, damping: float = 0.85, personalisation: ArrayLike | None = None, dangling: ArrayLike | None = None
) -> Array:
    """Closed form r = (1 - a) (I - a P^T)^-1 q, [N]; pages without links lead to `dangling`, by default to q."""
    _check_rate("damping", damping)
    links = link_matrix(adjacency, personalisation if dangling is None else dangling)
    q = distribution(personalisation, len(links))
    return np.linalg.solve(np.eye(len(links)) - damping * links.T, (1 - damping) * q).astype(np.float64)


@dataclass(frozen=True)
class Surfer:
    """A random surfer on N pages; action s clicks the link to page s, action N + s jumps to page s.

    `links` [N, N] are the probabilities of a click's destination, `jump` is the probability of a jump.
    """

    links: Array
    jump: float

    def __post_init__(self) -> None:
        _check_rate("jump", self.jump)

    @property
    def policy(self) -> Array:
        """[N, 2N]."""
        count = len(self.links)
        return np.concatenate([(1 - self.jump) * self.links, np.full((count, count), self.jump / count)], axis=-1)

    def mdp(self, damping: float, personalisation: ArrayLike | None = None) -> FiniteMDP:
        """The MDP whose Reverse GVF v under this surfer's policy is r / d, with r the rank and d the visiting distribution."""
        _check_rate("damping", damping)
        if damping > 1 - self.jump:
            raise ValueError(f"damping must be at most 1 - jump = {1 - self.jump:g}, not {damping}: discounts would exceed 1")
        count = len(self.links)
        pages = np.eye(count)
        transition = np.broadcast_to(np.concatenate([pages, pages]), (count, 2 * count, count))
        reward, discount = np.zeros_like(transition), np.zeros_like(transition)
        reward[:, count:] = (1 - damping) * count * distribution(personalisation, count) / self.jump
        discount[:, :count] = damping / (1 - self.jump)
        return FiniteMDP(transition, reward, discount)


def _check_rate(name: str, rate: float) -> None:
    if not 0 < rate < 1:
        raise ValueError(f"{name} must lie in (0, 1), not {rate}")
