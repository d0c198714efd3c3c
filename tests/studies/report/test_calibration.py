"""Verdicts on agents that do not differ claim a difference at most one time in twenty."""

import numpy as np
import pytest

from studies.report.calibration import SPLITS, false_claims
from studies.report.verdicts import Row, weigh

DRAWS = {
    "normal": lambda rng, size: rng.normal(10, 3, size),
    "skewed": lambda rng, size: rng.lognormal(0, 1.5, size),
    "ties": lambda rng, size: rng.integers(0, 3, size).astype(float),
}


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize(("trials", "games", "agents"), [(4, 1, 1), (8, 1, 3), (11, 1, 3), (20, 1, 4), (10, 3, 2)])
def test_an_agent_is_not_told_apart_from_itself(kind, trials, games, agents):
    """Split 200 times, or in every way; a few agents each, for 200 splits alone leave a doubt of 1.5%."""
    rng = np.random.default_rng(trials)
    samples = [[dict(enumerate(DRAWS[kind](rng, trials))) for _ in range(games)] for _ in range(agents)]
    assert np.mean([false_claims(sample) for sample in samples]) <= 0.05


def test_every_split_is_tried_where_there_are_few():
    """Of the 70 splits of eight runs two put all high ones on one side, and nothing less is claimed of four against four."""
    assert false_claims([dict(enumerate([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]))]) == pytest.approx(2 / 70)


@pytest.mark.parametrize("kind", ["normal", "skewed"])
def test_neither_are_two_agents_whose_scores_are_drawn_alike(kind):
    """Drawn anew each time, which the split of one sample is not."""
    rng = np.random.default_rng(0)
    claims = [false_claims([dict(enumerate(DRAWS[kind](rng, 12)))], splits=1) for _ in range(SPLITS)]
    assert np.mean(claims) <= 0.05


def test_intervals_alone_would_claim_too_much():
    """So that the tests above could fail: a bootstrap of four runs excludes 0 far too often."""
    rng = np.random.default_rng(0)
    rows = [Row([dict(enumerate(rng.normal(0, 1, 4)))], [dict(enumerate(rng.normal(0, 1, 4)))]) for _ in range(SPLITS)]
    assert np.mean([weigh(row).side != 0 for row in rows]) > 0.1
