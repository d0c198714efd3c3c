import math

import numpy as np
import pytest

from retrospective.anomaly import (
    Alarm,
    AnomalyMonitor,
    anomaly_probability,
    anomaly_surprise,
    conformal_threshold,
    minimum_probability,
    moving_average,
)


def test_anomaly_probability_by_hand():
    phi = lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2)))  # noqa: E731
    found = anomaly_probability(2.0, np.array([1.0, 4.0]), delta=0.5, sigma=2.0)
    expected = 1 - ((phi(0.75) - phi(0.25)) + (phi(-0.75) - phi(-1.25))) / 2
    assert found == pytest.approx(expected)
    assert anomaly_probability(3.0, np.full(5, 3.0)) == pytest.approx(0.3173, abs=1e-4)
    assert minimum_probability() == pytest.approx(0.3173, abs=1e-4)
    assert anomaly_probability(100.0, np.zeros(5)) == pytest.approx(1.0)


def test_the_monitors_recursion_equals_the_definition_of_the_reverse_return():
    rng = np.random.default_rng(0)
    rewards, discounts = rng.normal(size=(30, 2)), rng.choice([0.0, 0.5, 1.0], size=(30, 2))
    monitor = AnomalyMonitor(lambda state: np.zeros((2, 3)), streams=(2,))
    for t in range(30):
        reading = monitor.step(None, rewards[t], discounts[t])
        for stream in range(2):
            total, weight = 0.0, 1.0
            for k in range(t, -1, -1):  # G_t = R_t + gamma_t R_{t-1} + gamma_t gamma_{t-1} R_{t-2} + ...
                total += weight * rewards[k, stream]
                weight *= discounts[k, stream]
            assert reading.reverse_return[stream] == pytest.approx(total)
            expected = anomaly_probability(total, np.zeros(3))
            assert reading.probability[stream] == pytest.approx(expected)
    assert reading.known.all()
    assert not reading.alarm.any()


def test_an_invalid_reward_makes_a_stream_unknown_until_a_discount_of_zero():
    monitor = AnomalyMonitor(lambda state: np.zeros((2, 3)), streams=(2,))
    monitor.step(None, np.array([1.0, 1.0]), 1.0)
    bad = monitor.step(None, np.array([np.nan, 1.0]), 1.0)
    assert bad.known.tolist() == [False, True]
    assert np.isnan(bad.probability[0])
    assert bad.reverse_return[1] == 2.0
    still = monitor.step(None, 1.0, 1.0)
    assert still.known.tolist() == [False, True]
    healed = monitor.step(None, 5.0, np.array([0.0, 1.0]))
    assert healed.known.all()
    assert healed.reverse_return.tolist() == [5.0, 8.0]
    with pytest.raises(ValueError, match=r"stream \(1,\): reward inf"):
        AnomalyMonitor(lambda state: np.zeros((2, 3)), streams=(2,), strict=True).step(None, np.array([0.0, np.inf]), 1.0)
    with pytest.raises(ValueError, match="must be positive"):
        AnomalyMonitor(lambda state: np.zeros(3), sigma=0.0)


@pytest.mark.parametrize(("rate", "decay"), [(0.05, 0.0), (0.01, 0.9)])
def test_the_false_alarm_rate_on_new_data_is_the_target_rate(rate, decay):
    rng = np.random.default_rng(0)

    def normal(streams):
        """Autocorrelated probabilities, as in a real stream."""
        level, history = rng.random(streams), []
        for _ in range(600):
            level = np.where(rng.random(streams) < 0.3, rng.random(streams), level)
            history.append(level)
        return np.array(history)

    alarm = Alarm.calibrate(normal(200), rate, decay)
    assert alarm.target_rate == rate
    assert alarm.interval[0] - 0.2 * rate <= rate <= alarm.interval[1] + 0.2 * rate
    fresh = normal(400)
    monitor_score, raised = np.full(400, np.nan), []
    for probability in fresh:
        monitor_score = alarm.update_score(monitor_score, probability)
        raised.append(monitor_score > alarm.threshold)
    per_stream = np.mean(raised, axis=0)
    error = per_stream.std() / math.sqrt(400)
    width = (alarm.interval[1] - alarm.interval[0]) / 2
    assert abs(per_stream.mean() - rate) < 4 * error + 2 * width


def test_a_monitor_raises_its_alarm_above_the_threshold():
    alarm = Alarm(threshold=0.9, decay=0.0, target_rate=0.1, measured_rate=0.1, interval=(0.0, 0.2))
    monitor = AnomalyMonitor(lambda state: np.zeros(3), alarm=alarm)
    assert not monitor.step(None, 0.0, 0.0).alarm
    assert monitor.step(None, 50.0, 0.0).alarm
    assert not monitor.step(None, np.nan, 0.0).known


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"rate": 0.0}, "false-alarm rate"),
        ({"rate": 0.1, "decay": 1.0}, "decay must lie"),
    ],
)
def test_invalid_arguments_of_calibrate_are_refused(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        Alarm.calibrate(np.random.default_rng(0).random((10, 8)), **arguments)
    with pytest.raises(ValueError, match="at least 4 streams"):
        Alarm.calibrate(np.zeros((10, 2)), 0.1)


def test_surprise_is_the_logarithm_of_the_probability_and_does_not_saturate():
    quantiles = np.array([1.0, 4.0])
    for value in (-3.0, 2.0, 4.5):
        probability = anomaly_probability(value, quantiles, delta=0.5, sigma=2.0)
        assert anomaly_surprise(value, quantiles, delta=0.5, sigma=2.0) == pytest.approx(-math.log(1 - probability))
    assert anomaly_probability(60.0, quantiles) == 1.0
    # log Phi(-x) = -x^2 / 2 - log(x sqrt(2 pi)) - 1 / x^2 + ...; the nearest quantile counts, as one of two.
    x = 60.0 - 4.0 - 1.0
    assert anomaly_surprise(60.0, quantiles) == pytest.approx(
        x**2 / 2 + math.log(x * math.sqrt(2 * math.pi)) + 1 / x**2 + math.log(2)
    )
    far = anomaly_surprise(np.array([1e3, 1e6, 1e9]), np.zeros((3, 5)))
    assert np.isfinite(far).all()
    assert (np.diff(far) > 0).all()


def test_the_conformal_threshold_by_hand():
    """Of 9 scores the ceil(10 * 0.8) = 8th smallest; a tenth score exceeds it with probability 2/10."""
    scores = np.array([3.0, 1, 9, 7, 5, 2, 8, 6, 4])
    assert conformal_threshold(scores, 0.2) == 8.0
    assert conformal_threshold(scores, 0.01) == 9.0
    for rate in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="must lie in"):
            conformal_threshold(scores, rate)


def test_the_moving_average_by_hand_and_continued():
    """Decay 1/2: 4, then 2 + 1, then unchanged, then 1.5 + 4. The second stream begins with its second value."""
    values = np.array([[4.0, np.nan], [2.0, 8.0], [np.nan, 0.0], [8.0, 4.0]])
    whole = moving_average(values, 0.5)
    assert whole == pytest.approx(np.array([[4, np.nan], [3, 8], [3, 4], [5.5, 4]]), nan_ok=True)
    assert moving_average(values[2:], 0.5, start=whole[1]) == pytest.approx(whole[2:])
    with pytest.raises(ValueError, match="decay must lie"):
        moving_average(values, 1.0)
