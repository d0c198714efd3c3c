"""The false positive rate of the verdicts is at most 5%."""

import numpy as np
import pytest

from studies.report.calibration import SPLITS, false_positive_rate
from studies.report.verdicts import Comparison, assess

DRAWS = {
    "normal": lambda rng, size: rng.normal(10, 3, size),
    "skewed": lambda rng, size: rng.lognormal(0, 1.5, size),
    "ties": lambda rng, size: rng.integers(0, 3, size).astype(float),
}


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize(("trials", "games", "agents"), [(4, 1, 1), (8, 1, 3), (11, 1, 3), (20, 1, 4), (10, 3, 2)])
def test_the_false_positive_rate_on_splits_of_one_agent(kind, trials, games, agents):
    """Split 200 times, or in every way; a few agents each, because 200 splits have a standard error of 1.5%."""
    rng = np.random.default_rng(trials)
    samples = [[dict(enumerate(DRAWS[kind](rng, trials))) for _ in range(games)] for _ in range(agents)]
    assert np.mean([false_positive_rate(sample) for sample in samples]) <= 0.05


def test_few_splits_are_tried_exhaustively():
    """Of the 70 splits of eight runs two put all high ones on one side; only those are significant."""
    assert false_positive_rate([dict(enumerate([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]))]) == pytest.approx(2 / 70)


@pytest.mark.parametrize("kind", ["normal", "skewed"])
def test_the_false_positive_rate_on_two_samples_of_one_distribution(kind):
    """Independent samples each time, unlike the splits of one sample."""
    rng = np.random.default_rng(0)
    claims = [false_positive_rate([dict(enumerate(DRAWS[kind](rng, 12)))], splits=1) for _ in range(SPLITS)]
    assert np.mean(claims) <= 0.05


def test_confidence_intervals_alone_have_too_many_false_positives():
    """So that the tests above could fail: a bootstrap of four runs excludes 0 far too often."""
    rng = np.random.default_rng(0)
    comparisons = [
        Comparison([dict(enumerate(rng.normal(0, 1, 4)))], [dict(enumerate(rng.normal(0, 1, 4)))]) for _ in range(SPLITS)
    ]
    assert np.mean([assess(comparison).side != 0 for comparison in comparisons]) > 0.1
