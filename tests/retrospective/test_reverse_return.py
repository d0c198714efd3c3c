import numpy as np
import pytest

from retrospective.reverse_return import ReverseReturn, n_step


def test_the_return_and_its_missing_share_by_hand():
    """Discount 1/2, fill 1: the unobserved past is worth 2. A reading of 3, two missing ones, then NaN, then 5."""
    tracker = ReverseReturn((), 0.5, fill=1.0)
    assert (tracker.value, tracker.missing) == (2.0, 1.0)
    tracker.step(np.array(3.0))
    assert (tracker.value, tracker.missing) == (4.0, 0.5)
    tracker.step(np.array(np.nan), skipped=2)  # 1 + (1 + (1 + 4/2)/2)/2
    assert tracker.value == pytest.approx(1 + (1 + (1 + 2) / 2) / 2)
    assert tracker.missing == pytest.approx(1 - 0.5 * 0.5**3)
    tracker.step(np.array(5.0))
    assert tracker.value == pytest.approx(5 + 2.25 / 2)
    assert tracker.missing == pytest.approx((1 - 0.5**4) / 2)


def test_streams_with_gaps_agree_with_the_definition():
    rng = np.random.default_rng(0)
    discount, fill = 0.8, -0.3
    tracker = ReverseReturn((4,), discount, fill)
    history = [[] for _ in range(4)]
    for _ in range(20):
        reward, skipped = rng.normal(size=4), rng.integers(0, 3, size=4)
        reward[rng.random(4) < 0.2] = np.nan
        tracker.step(reward, skipped)
        for stream, readings in enumerate(history):
            readings += [np.nan] * skipped[stream] + [reward[stream]]
    for stream, readings in enumerate(history):
        newest_first = np.array(readings[::-1])
        weight = discount ** np.arange(len(newest_first))
        absent = np.isnan(newest_first)
        before = discount ** len(newest_first)
        expected = (weight * np.where(absent, fill, newest_first)).sum() + before * fill / (1 - discount)
        assert tracker.value[stream] == pytest.approx(expected)
        assert tracker.missing[stream] == pytest.approx((1 - discount) * weight[absent].sum() + before)


def test_looking_ahead_stores_nothing():
    tracker = ReverseReturn((2,), 0.9)
    value, missing = tracker.after(np.ones(2))
    assert tracker.value.tolist() == [0.0, 0.0]
    tracker.step(np.ones(2))
    assert tracker.value == pytest.approx(value)
    assert tracker.missing == pytest.approx(missing)


def test_a_discount_of_zero_forgets_at_once():
    tracker = ReverseReturn((), 0.0)
    tracker.step(np.array(7.0), skipped=3)
    assert (tracker.value, tracker.missing) == (7.0, 0.0)


@pytest.mark.parametrize("discount", [-0.1, 1.0, np.nan])
def test_a_discount_outside_its_range_is_refused(discount):
    with pytest.raises(ValueError, match=r"discount must lie in \[0, 1\)"):
        ReverseReturn((), discount)


def test_n_steps_taken_as_one_by_hand():
    """Rewards 1, 2, 3 with discounts 1/2, 0, 1/4. The second and third: 3 + 2/4, and nothing from before."""
    total, weight = n_step(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.0, 0.25]), 2)
    assert total.tolist() == [2.0, 3.5]
    assert weight.tolist() == [0.0, 0.0]
    assert n_step(np.array([1.0, 2.0]), np.array([0.5, 0.25]), 2)[1].tolist() == [0.125]


def test_n_steps_taken_as_one_lead_to_the_same_return():
    rng = np.random.default_rng(0)
    reward, discount = rng.normal(size=(20, 3)), rng.random((20, 3)) * (rng.random((20, 3)) > 0.2)
    returns = [np.zeros(3)]
    for r, g in zip(reward, discount, strict=True):
        returns.append(r + g * returns[-1])
    for n in (1, 4, 20):
        total, weight = n_step(reward, discount, n)
        assert total + weight * np.array(returns[:-n]) == pytest.approx(np.array(returns[n:]))
    with pytest.raises(ValueError, match=r"n must lie in \[1, 20\]"):
        n_step(reward, discount, 21)
