"""Statistical power, against Cohen's tables, algebra and simulation."""

import numpy as np
import pytest

from studies.report.power import (
    MAX_SEEDS,
    effect_from_probability,
    minimum_detectable_effect,
    pooled_standard_deviation,
    probability_from_effect,
    seeds_needed,
)
from studies.report.verdicts import Comparison, conclude


@pytest.mark.parametrize(("effect", "seeds"), [(0.2, 394), (0.5, 64), (0.8, 26)])
def test_seeds_needed_are_those_of_cohen(effect, seeds):
    """Small, medium and large effects at 5% with 80% power (Cohen 1992; 393 in his rounding of the first)."""
    assert seeds_needed(effect, 0.05) == seeds
    assert seeds_needed(-effect, 0.05) == seeds


def test_the_minimum_detectable_effect_inverts_the_seeds_needed():
    for seeds in (5, 10, 64, 393):
        effect = minimum_detectable_effect([(seeds, seeds)], 0.05)
        assert seeds_needed(effect * 1.0001, 0.05) == seeds
        assert seeds_needed(effect * 0.98, 0.05) > seeds or seeds < 30
    assert minimum_detectable_effect([(64, 64)], 0.05) == pytest.approx(0.5, abs=0.002)
    assert minimum_detectable_effect([(2, 2)], 1e-4) == np.inf


def test_unequal_samples_count_as_their_harmonic_mean():
    assert minimum_detectable_effect([(6, 12)], 0.05) == pytest.approx(minimum_detectable_effect([(8, 8)], 0.05))


def test_seeds_of_several_games_add_up():
    """Four games of ten seeds detect what one game of forty does, and need a quarter of its seeds."""
    assert minimum_detectable_effect([(10, 10)] * 4, 0.05) == pytest.approx(minimum_detectable_effect([(40, 40)], 0.05))
    assert seeds_needed(0.5, 0.05, games=4) == 16


def test_the_permutation_test_needs_four_seeds_however_large_the_effect():
    """2/C(6, 3) = 0.1 and 2/C(8, 4) = 0.03; two games: 2/6^2 = 0.056 and 2/20^2 = 0.005."""
    assert seeds_needed(100.0, 0.05) == 4
    assert seeds_needed(100.0, 0.05, games=2) == 3
    assert seeds_needed(0.0, 0.05) is None
    assert seeds_needed(0.01, 0.05) is None
    assert seeds_needed((15.7 / MAX_SEEDS) ** 0.5 * 1.01, 0.05) <= MAX_SEEDS


def test_the_pooled_standard_deviation_by_hand():
    """Squares 2 and 2 around the means of three and of two: 4 over 3 degrees of freedom."""
    assert pooled_standard_deviation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 12.0])) == pytest.approx((4 / 3) ** 0.5)


def test_effects_and_probabilities_of_improvement():
    """The difference of two normal scores has twice the variance of one."""
    assert probability_from_effect(0) == 0.5
    assert probability_from_effect(2**0.5) == pytest.approx(0.8413, abs=1e-4)
    assert effect_from_probability(probability_from_effect(0.7)) == pytest.approx(0.7)
    assert np.isfinite(effect_from_probability(1.0))


@pytest.mark.parametrize(("seeds", "games"), [(10, 1), (6, 3)])
def test_the_minimum_detectable_effect_is_found_four_times_out_of_five(seeds, games):
    effect = minimum_detectable_effect([(seeds, seeds)] * games, 0.05)
    rng = np.random.default_rng(0)
    shown = 0
    for _ in range(200):
        x, y = ([dict(enumerate(rng.normal(mean, 1, seeds))) for _ in range(games)] for mean in (effect, 0))
        shown += conclude([Comparison(x, y, over_games=games > 1)])[0].kind == "better"
    assert 0.7 < shown / 200 < 0.9
