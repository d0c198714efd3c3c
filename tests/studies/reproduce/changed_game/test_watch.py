"""Detectors and measures of the changed game, by hand and on a cycle of two states."""

import numpy as np
import pytest

from studies.reproduce.changed_game.detectors import (
    ForwardTD,
    Moments,
    OneQuestion,
    Questions,
    Rank,
    Retrospective,
    Trees,
    ZScore,
    make_detectors,
    root_mean_square,
)
from studies.reproduce.changed_game.measures import Watch, first_alarms, median_delay, noticed, separation
from studies.reproduce.changed_game.play import Play
from studies.reproduce.changed_game.study import SETTINGS

SHORT = SETTINGS | {"n_step": 3, "updates": 500, "batch_size": 64, "target_interval": 10, "learning_rate": 5e-3}


def cycle(steps, bonus=0.0):
    """A -> B -> A ...; entering A pays 1 + bonus. Both discounts are 1/2, so the returns at A and B are 4/3 and 2/3, or 2."""
    at_a = (np.arange(steps + 1) % 2 == 0)[:, None] * np.ones((1, 3), dtype=bool)
    features = np.stack([at_a, ~at_a], axis=-1).astype(float)
    reward = np.stack([(1 + bonus) * at_a[1:], np.ones((steps, 3))], axis=-1)
    discount = np.full(reward.shape, 0.5)
    returns = np.zeros_like(reward)
    last = np.array([4 / 3 * (1 + bonus), 2.0])
    for t in range(steps):
        last = reward[t] + discount[t] * last
        returns[t] = last
    return Play(features, reward, discount, returns)


@pytest.mark.parametrize(("forward", "a", "b"), [(False, 4 / 3, 2 / 3), (True, 2 / 3, 4 / 3)])
def test_the_questions_learn_the_return_behind_or_ahead(forward, a, b):
    """Behind: G_A = 1 + G_B / 2, G_B = G_A / 2. Ahead: v_A = v_B / 2, v_B = 1 + v_A / 2."""
    questions = Questions(SHORT, 0, forward)
    questions.fit(cycle(60))
    found = questions.quantiles(np.array([[[1.0, 0.0], [0.0, 1.0]]])).mean(-1)[0] * questions.scale
    assert found[:, 0] == pytest.approx([a, b], abs=0.05)
    assert found[:, 1] == pytest.approx([2, 2], abs=0.1)


def test_a_higher_return_surprises_the_retrospective_detector():
    detector = Retrospective(SHORT, 0)
    detector.fit(cycle(60))
    normal, paid = detector.score(cycle(10)), detector.score(cycle(10, bonus=1.0))
    assert normal.shape == (10, 3)
    assert paid.min() > normal.max() + 0.2
    reward, steps = (OneQuestion(detector, question) for question in ("reward", "steps"))
    play = cycle(10, bonus=1.0)
    assert (reward.score(play) + steps.score(play)) / 2 == pytest.approx(paid)
    assert steps.score(play) == pytest.approx(steps.score(cycle(10)))
    assert reward.score(play).min() > reward.score(cycle(10)).max() + 0.2


def test_the_rank_of_a_return_among_its_quantiles_by_hand():
    """Quantiles 1, 2, 3, 4 in units of 2. A return of 5 lies above two of them, one of 9 above all, one of 1 above none."""
    detector = Retrospective(SHORT, 0)
    detector._questions = Given()
    detector._questions.scale = np.array([2.0, 2.0])
    play = Play(np.zeros((2, 1, 1)), *np.zeros((2, 1, 1, 2)), np.array([[[5.0, 9.0]]]))
    assert detector.ranks(play).tolist() == [[[0.0, 1.0]]]
    assert Rank(detector).score(play).tolist() == [[0.5]]
    play.returns[...] = [1.0, 7.0]
    assert detector.ranks(play).tolist() == [[[1.0, 0.5]]]


def test_the_td_error_is_that_of_the_definition_and_nearly_0_without_noise():
    detector = ForwardTD(SHORT, 0)
    play = cycle(60)
    detector.fit(play)
    value = detector._questions.quantiles(play.features).mean(-1)
    scale = detector._questions.scale
    by_hand = play.reward[4, 1] / scale + 0.5 * value[5, 1] - value[4, 1]
    assert detector.score(play)[4, 1] == pytest.approx(np.abs(by_hand / detector._unit).max())
    assert np.abs(detector._errors(play) * scale).max() < 0.1
    assert detector.score(cycle(10, bonus=1.0)).max() > 5 * detector.score(play).max()


def test_z_scores_by_hand():
    play = cycle(2)
    play.features[1:, 0] = [[1.0, 5.0], [3.0, 5.0]]
    detector = ZScore(lambda play: play.states[:, :1])
    detector.fit(play)  # Means 2 and 5, deviations 1 and (of none) 1.
    play.features[1, 0] = [5.0, 3.0]
    assert detector.score(play).tolist() == [[3.0], [1.0]]


def test_moments_of_a_constant_column_have_deviation_1():
    assert Moments(np.array([[[2.0, 1.0]], [[4.0, 1.0]]])).standardise(np.array([5.0, 3.0])).tolist() == [2.0, 2.0]


def test_the_trees_score_an_outlier_higher():
    rng = np.random.default_rng(0)
    play = Play(rng.normal(size=(301, 2, 3)), *np.zeros((3, 300, 2, 2)))
    detector = Trees(0)
    detector.fit(play)
    odd = Play(np.full((5, 2, 3), 9.0), *np.zeros((3, 4, 2, 2)))
    assert detector.score(odd).shape == (4, 2)
    assert detector.score(odd).mean() > np.quantile(detector.score(play), 0.95)


def test_the_retrospective_detector_is_the_first():
    assert next(iter(make_detectors(SHORT, 0))) == "retrospective"


class Given:
    """Scores that are given in place of a play, and quantiles 1 to 4 of every state."""

    def quantiles(self, features):
        return np.broadcast_to(np.arange(1.0, 5.0), (*features.shape[:-1], 2, 4))

    def score(self, play):
        return np.asarray(play, dtype=float)


def test_threshold_rate_and_delays_by_hand():
    """Decay 1/2. Averages of the calibration: 4, 2, 1, 0.5, so a rate of 1/4 allows 2. Then 1.25, 2.625, 1.3125, 0.65625."""
    watch = Watch(Given(), decay=0.5)
    rate = watch.calibrate([[4], [0], [0], [0]], [[2], [4], [0], [0]], rate=0.25)
    assert watch.threshold == 4.0  # The smallest rank that is valid for 4 scores: ceil(5 * 3/4) = 4.
    assert rate == 0.0
    rate = watch.calibrate([[4], [0], [0], [0]], [[2], [4], [0], [0]], rate=0.5)
    assert watch.threshold == 2.0  # ceil(5 / 2) = 3
    assert rate == 1 / 4
    found = watch.watch([[0.0], [6.0], [0.0]])
    assert found.delays == [2]  # 0.328, 3.164, 1.582
    assert found.means == pytest.approx([(0.328125 + 3.1640625 + 1.58203125) / 3], rel=1e-4)


def test_first_alarms_shares_and_delays_by_hand():
    averages = np.array([[1.0, 0.0, 0.2], [0.0, 0.0, 0.9], [2.0, 0.5, 0.0]])
    delays = first_alarms(averages, threshold=0.5)
    assert delays == [1, None, 2]
    assert noticed(delays) == pytest.approx(2 / 3)
    assert median_delay(delays) == 1.5
    assert median_delay([None, None]) is None


def test_separation_by_hand():
    assert separation([2.0, 3.0], [0.0, 1.0]) == 1.0
    assert separation([1.0, 1.0], [1.0, 1.0]) == 0.5
    assert separation([0.0, 3.0], [1.0, 2.0]) == 0.5


def test_the_root_mean_square_by_hand():
    assert root_mean_square(np.array([[[3.0, 0.0]], [[-4.0, 0.0]]])) == pytest.approx([12.5**0.5, 1.0])
