"""RetrospectiveDetector under the conventions of scikit-learn and river, and with bad input."""

import copy
import importlib
import sys
from datetime import datetime, timedelta

import numpy as np
import pytest
from river import compose, evaluate, metrics, preprocessing
from sklearn.base import clone, is_outlier_detector
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from retrospective import detector as detector_module
from retrospective.detector import Flag, RetrospectiveDetector

ORDER_MATTERS = "the score of a reading depends on those before it"
CANNOT_PASS = {
    "check_methods_sample_order_invariance": ORDER_MATTERS,
    "check_methods_subset_invariance": ORDER_MATTERS,
}


@pytest.mark.parametrize("discount", [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
def test_the_checks_of_scikit_learn(discount):
    """All of them without a past, and with one all but the two that forbid a past."""
    found = check_estimator(RetrospectiveDetector(discount, epochs=1, bins=4, quantiles=5), on_fail=None, on_skip=None)
    failed = {check["check_name"] for check in found if check["status"] == "failed"}
    assert failed == (set(CANNOT_PASS) if discount else set())
    assert sum(check["status"] == "passed" for check in found) > 40


def noise(steps, seed, shift=0.0, columns=1):
    return np.random.default_rng(seed).normal(shift, 1.0, (steps, columns))


def test_a_shift_too_small_for_one_reading_is_found_in_the_past():
    normal, shifted = noise(1000, 1), noise(1000, 2, shift=1.0)
    share = {}
    for discount in (0.0, 0.95):
        detector = RetrospectiveDetector(discount, epochs=2).fit(noise(1500, 0)).calibrate(noise(1500, 3), rate=0.05)
        share[discount] = [np.mean(detector.predict(data)[100:] == -1) for data in (normal, shifted)]
    assert share[0.0][0] < 0.1
    assert share[0.95][0] < 0.12  # Successive returns are correlated, so that the rate of 900 readings varies.
    assert share[0.95][1] > 0.8 > 0.4 > share[0.0][1]


def test_contamination_is_the_share_of_outliers_in_the_training_data():
    X = noise(400, 0, columns=3)
    for share in (0.05, 0.25):
        found = RetrospectiveDetector(contamination=share, epochs=2).fit_predict(X)
        assert np.mean(found == -1) == pytest.approx(share, abs=0.003)


def test_the_false_alarm_rate_holds_on_new_data():
    detector = RetrospectiveDetector(0.0, false_alarm_rate=0.1, epochs=2).fit(noise(1000, 0, columns=2))
    assert np.mean(detector.predict(noise(1000, 0, columns=2)) == -1) == pytest.approx(0.1, abs=0.002)
    assert np.mean(detector.predict(noise(2000, 1, columns=2)) == -1) == pytest.approx(0.1, abs=0.03)


def test_an_impossible_combination_of_ordinary_values_is_found():
    """Column 1 repeats column 0; in the outliers it has the opposite sign."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=1000)
    X = np.stack([first, first + 0.1 * rng.normal(size=1000)], axis=-1)
    detector = RetrospectiveDetector(0.0, epochs=3).fit(X)
    odd = np.array([[1.5, -1.5], [-1.5, 1.5]])
    assert (detector.score_samples(odd) < np.quantile(detector.score_samples(X), 0.01)).all()


def readings(hours, values):
    start = datetime(2022, 3, 20)
    return [{"time": start + timedelta(hours=hour), "flow": value} for hour, value in zip(hours, values, strict=True)]


def hourly(**settings):
    return RetrospectiveDetector(0.5, time="time", interval=3600.0, **settings)


def test_bad_readings_are_flagged_and_not_fatal():
    detector = hourly()
    assert detector.score_one(readings([0], [1.0])[0]) == 0.0
    assert detector.flag_one(readings([0], [1.0])[0]) == Flag.UNCERTAIN
    for x in readings(range(30), np.sin(range(30))):
        detector.learn_one(x)
    cases = {
        (30, 0.3): Flag.NOTHING,
        (31, 0.3): Flag.GAP,
        (45, 0.3): Flag.GAP,
        (29, 0.3): Flag.LATE,
        (12, 0.3): Flag.LATE,
        (30, np.nan): Flag.INVALID | Flag.UNCERTAIN,  # The newest reading has half of the weight.
        (30, None): Flag.INVALID | Flag.UNCERTAIN,
        (60, np.inf): Flag.INVALID | Flag.GAP | Flag.UNCERTAIN,
    }
    for (hour, value), flag in cases.items():
        x = readings([hour], [value])[0]
        assert detector.flag_one(x) == flag
        assert np.isnan(detector.score_one(x)) == bool(flag & (Flag.INVALID | Flag.LATE))
    before = detector.score_one(readings([30], [0.3])[0])
    detector.learn_one(readings([3], [1e9])[0])  # Late
    assert detector.score_one(readings([30], [0.3])[0]) == before
    detector.learn_one(readings([30], [np.nan])[0])
    detector.learn_one({"flow": 0.2})  # Without a time
    assert detector.flag_one(readings([32], [0.3])[0]) & Flag.GAP == 0
    assert np.isfinite(detector.score_one(readings([32], [0.3])[0]))


def test_bad_rows_of_an_array_are_flagged_and_not_fatal():
    X = np.column_stack([np.arange(200.0), noise(200, 0)])
    detector = RetrospectiveDetector(0.5, time=0, epochs=1).fit(X)
    bad = np.delete(X, [50, 51], axis=0)
    bad[20, 1], bad[30, 1], bad[100, 0] = np.nan, -np.inf, 3.0
    found = detector.read(bad)
    assert found.flag[0] == 0  # Half of the weight of the first return has been observed.
    invalid = Flag.INVALID | Flag.UNCERTAIN  # The newest reading has half of the weight.
    expected = {20: invalid, 30: invalid, 50: Flag.GAP, 100: Flag.LATE, 101: Flag.GAP}
    assert {int(t): Flag(int(found.flag[t])) for t in np.flatnonzero(found.flag)} == expected
    assert np.flatnonzero(np.isnan(found.score)).tolist() == [20, 30, 100]
    assert detector.predict(bad)[[20, 30, 100]].tolist() == [1, 1, 1]
    assert np.isfinite(RetrospectiveDetector(0.5, time=0, epochs=1).fit(bad).offset_)


def test_one_invalid_column_leaves_the_questions_about_the_others():
    X = noise(300, 0, columns=3)
    detector = RetrospectiveDetector(0.0, epochs=2).fit(X)
    X[5, 1] = np.nan
    X[6] = np.nan
    found = detector.read(X)
    assert np.isfinite(found.score[5])
    assert np.isnan(found.score[6])
    assert found.flag[5] == found.flag[6] == Flag.INVALID | Flag.UNCERTAIN
    assert found.flag[7] == 0


def test_reading_a_stream_changes_nothing_and_a_fitted_stream_goes_on():
    X = noise(120, 0, columns=2)
    detector = RetrospectiveDetector(0.9, epochs=2).fit(X)
    first = detector.decision_function(X)
    x = dict(enumerate(X[0]))
    ahead = detector.score_one(x)
    assert np.array_equal(detector.decision_function(X), first)
    assert detector.score_one(x) == ahead
    assert ahead != 1 - np.exp(detector.score_samples(X[:1])[0])  # It follows the last reading of X, not the start of a stream.
    detector.learn_one(x)
    assert detector.score_one(x) != ahead


def test_river_evaluates_the_detector_in_a_pipeline():
    model = compose.Pipeline(preprocessing.StandardScaler(), RetrospectiveDetector(0.0))
    rng = np.random.default_rng(0)
    stream = [({"a": rng.normal(), "b": rng.normal()}, False) for _ in range(300)]
    stream += [({"a": rng.normal() + 8, "b": rng.normal()}, True) if i % 5 == 0 else stream[i] for i in range(100)]
    found = evaluate.progressive_val_score(stream, model, metrics.ROCAUC())
    assert found.get() > 0.9


def test_both_conventions_give_the_same_score():
    X = noise(60, 0, columns=2)
    batch = RetrospectiveDetector(0.8, epochs=1).fit(X)
    online = copy.deepcopy(batch)
    online.model_.restart()
    for row, score in zip(X[:10], batch.score_samples(X[:10]), strict=True):
        assert online.score_one(dict(enumerate(row))) == pytest.approx(1 - np.exp(score))
        online.model_.advance(row[None])


def test_scikit_learn_knows_what_it_is():
    detector = RetrospectiveDetector(0.7, cumulants=[0])
    assert is_outlier_detector(detector)
    assert clone(detector).get_params() == detector.get_params()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"discount": 1.0}, r"discount must lie in \[0, 1\), not 1.0"),
        ({"contamination": 0.0}, r"contamination must lie in \(0, 0.5\]"),
        ({"contamination": 0.6}, r"contamination must lie in \(0, 0.5\]"),
        ({"false_alarm_rate": 1.0}, r"false_alarm_rate must lie in \(0, 1\)"),
        ({"false_alarm_rate": 0.0}, r"false_alarm_rate must lie in \(0, 1\)"),
        ({"interval": 0.0}, "interval must lie"),
        ({"epochs": 0}, "epochs must lie"),
        ({"cumulants": [3]}, "there is no column 3; there is 0, 1"),
        ({"time": "when"}, "there is no column 'when'"),
    ],
)
def test_invalid_settings_are_refused(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        RetrospectiveDetector(**settings).fit(noise(20, 0, columns=2))


def test_misuse_is_refused():
    detector, X = RetrospectiveDetector(epochs=1), noise(20, 0, columns=2)
    for method in (detector.predict, detector.decision_function, detector.score_samples, detector.read):
        with pytest.raises(NotFittedError):
            method(X)
    with pytest.raises(NotFittedError):
        detector.calibrate(X, 0.1)
    with pytest.raises(ValueError, match="no reading is finite"):
        detector.fit(np.full((5, 2), np.nan))
    with pytest.raises(ValueError, match="0 sample"):
        detector.fit(np.empty((0, 2)))
    with pytest.raises(ValueError, match="besides its time"):
        RetrospectiveDetector(time=0).fit(X[:, :1])
    with pytest.raises(ValueError, match="column 'a' is not a number: 'much'"):
        RetrospectiveDetector().learn_one({"a": "much"})
    with pytest.raises(ValueError, match="false-alarm rate must lie"):
        detector.fit(X).calibrate(X, 1.0)


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hindcast\[streams\]'"):
        importlib.reload(detector_module)
