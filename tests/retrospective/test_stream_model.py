"""Readings as retrospective questions: moments, features, learnt distributions, many streams at once."""

import numpy as np
import pytest

from retrospective.finite_mdp import FiniteMDP
from retrospective.stream_model import EDGE, RunningMoments, StreamModel, hat_features
from tests.retrospective.test_finite_mdp import streams_of

FLIP = np.array([[[0.9, 0.1]], [[0.3, 0.7]]])
DISCOUNT = 0.8


def test_running_moments_agree_with_numpy():
    rng = np.random.default_rng(0)
    values = rng.normal(3, 2, (50, 4))
    values[rng.random((50, 4)) < 0.2] = np.nan
    values[:, 3] = 5.0
    moments = RunningMoments((4,))
    for value in values:
        moments.add(value)
    assert moments.mean == pytest.approx(np.nanmean(values, 0))
    assert moments.std[:3] == pytest.approx(np.nanstd(values, 0)[:3])
    assert moments.std[3] == 1.0
    assert moments.count.tolist() == np.isfinite(values).sum(0).tolist()


def test_hat_features_by_hand():
    found = hat_features(np.array([[0.0, -EDGE], [EDGE / 2, 99.0], [np.nan, 0.5 * -EDGE]]), bins=3)
    assert found[0].tolist() == [0, 1, 0, 1, 0, 0, 1]
    assert found[1].tolist() == [0, 0.5, 0.5, 0, 0, 1, 1]
    assert found[2].tolist() == [0, 0, 0, 0.5, 0.5, 0, 1]


def one_hot(reading):
    return np.eye(2)[reading[..., 0].astype(int)]


def flip_readings(streams, steps, seed):
    """Readings (state, amount) [steps, streams, 2] of a chain that pays 1 on entering state 1, with noise."""
    mdp = FiniteMDP(FLIP, np.zeros_like(FLIP), np.zeros_like(FLIP))
    rng = np.random.default_rng(seed)
    entered = np.array([t for _, _, t in streams_of(mdp, np.ones((2, 1)), streams, steps, seed)])
    return np.stack([entered, entered + 0.1 * rng.normal(size=entered.shape)], axis=-1)


def test_the_mean_of_the_quantiles_is_the_reverse_gvf_of_the_centred_cumulant():
    reward = np.broadcast_to([0.0, 1.0], FLIP.shape) - 0.25  # The chain is in state 1 a quarter of the time.
    exact = FiniteMDP(FLIP, reward, np.full_like(FLIP, DISCOUNT)).reverse_gvf(np.ones((2, 1)))
    readings = flip_readings(60, 1500, 0)
    model = StreamModel(2, DISCOUNT, [1], [0], one_hot, streams=60, quantiles=30, step_size=0.2, kappa=0.02)
    for reading in readings:
        model.measure_columns(reading)
    for reading in readings:
        model.measure_returns(reading)
    model.restart()
    total, count = 0.0, 0
    for t, reading in enumerate(readings):
        model.learn(reading, measure=False)
        if t >= 500:
            total, count = total + model._learner.theta.mean(2), count + 1
    found = (total / count)[:, 0] * model._spread.std
    error = found.std(0) / np.sqrt(len(found))
    assert np.abs(exact[1] - exact[0]) > 0.5
    assert np.abs(found.mean(0) - exact) == pytest.approx(0, abs=5 * error.max() + 0.02)


def test_streams_do_not_touch_each_other():
    readings = flip_readings(3, 80, 1)
    readings[20, 1] = np.nan
    skipped = np.random.default_rng(0).integers(0, 2, (80, 3))
    together = StreamModel(2, DISCOUNT, [0, 1], [0, 1], streams=3)
    alone = [StreamModel(2, DISCOUNT, [0, 1], [0, 1]) for _ in range(3)]
    for reading, gaps in zip(readings, skipped, strict=True):
        expected = [model.read(reading[i : i + 1], gaps[i]) for i, model in enumerate(alone)]
        found = together.read(reading, gaps)
        for i, model in enumerate(alone):
            assert found.score[i] == pytest.approx(expected[i].score[0], nan_ok=True)
            assert found.missing[i] == pytest.approx(expected[i].missing[0])
            model.learn(reading[i : i + 1], gaps[i])
        together.learn(reading, gaps)
    assert np.isfinite(found.score).all()


def test_memory_is_constant_and_that_of_a_stream_times_their_number():
    sizes = {}
    for streams in (1, 5):
        model = StreamModel(2, DISCOUNT, [0, 1], [0, 1], streams=streams)
        for t, reading in enumerate(flip_readings(streams, 200, 0)):
            model.learn(reading)
            sizes[streams, t] = model.num_bytes
    assert sizes[1, 5] == sizes[1, 199] > 0
    assert sizes[5, 199] == 5 * sizes[1, 199]


def test_a_question_does_not_see_its_own_column():
    model = StreamModel(2, 0.0, [0, 1], [0, 1])
    for reading in flip_readings(1, 20, 0):
        model.learn(reading)
    x = model._state(np.array([[1.0, 1.0]]))
    assert (x[0, 0, :8] == 0).all()
    assert (x[0, 0, 8:16] > 0).any()
    assert (x[0, 1, 8:16] == 0).all()
    assert np.linalg.norm(x, axis=-1) == pytest.approx(1)


def test_a_transition_with_a_missing_reading_is_not_learnt_from():
    model = StreamModel(2, DISCOUNT, [1], [0], one_hot)
    reading = np.array([[1.0, 5.0]])
    for skipped, value in ((0, 5.0), (1, 5.0), (0, np.nan), (0, 5.0)):
        reading[0, 1] = value
        model.learn(reading, skipped)
        assert not model._learner.theta.any()
    reading[0, 1] = 9.0
    model.learn(reading)
    assert model._learner.theta.any()
