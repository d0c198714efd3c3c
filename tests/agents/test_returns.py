import math

import pytest
import torch

from agents.returns import lambda_returns, reverse_lambda_returns, vtrace


def literal_vtrace(log_rho, reward, discount, value, bootstrap, rho_clip, c_clip, lambda_=1.0):
    """The paper's double sum, term by term, for one stream.

    v_s = V_s + sum_{t=s}^{T-1} (prod_{i=s}^{t-1} gamma_i c_i) rho_t (r_t + gamma_t V_{t+1} - V_t)
    """
    length = len(value)
    rho = [min(rho_clip, math.exp(x)) for x in log_rho]
    c = [lambda_ * min(c_clip, math.exp(x)) for x in log_rho]
    values = [*value, bootstrap]
    targets = []
    for s in range(length):
        total = values[s]
        for t in range(s, length):
            product = 1.0
            for i in range(s, t):
                product *= discount[i] * c[i]
            total += product * rho[t] * (reward[t] + discount[t] * values[t + 1] - values[t])
        targets.append(total)
    following = [*targets[1:], bootstrap]
    advantages = [rho[s] * (reward[s] + discount[s] * following[s] - values[s]) for s in range(length)]
    return targets, advantages


def random_streams(seed, length=7, batch=5):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    discount = 0.9 * (torch.rand(length, batch, generator=generator) > 0.2).double()
    return draw(length, batch), draw(length, batch), discount, draw(length, batch), draw(batch)


@pytest.mark.parametrize(("rho_clip", "c_clip", "lambda_"), [(1.0, 1.0, 1.0), (2.0, 0.7, 1.0), (0.5, 1.5, 0.8)])
def test_vtrace_equals_the_papers_double_sum_for_ratios_above_and_below_the_clips(rho_clip, c_clip, lambda_):
    streams = random_streams(seed=0)
    ratio = streams[0].exp()
    for clip in (rho_clip, c_clip):
        assert (ratio > clip).any()
        assert (ratio < clip).any()
    result = vtrace(*streams, rho_clip, c_clip, lambda_)
    for b in range(5):
        columns = [x[..., b].tolist() for x in streams]
        targets, advantages = literal_vtrace(*columns, rho_clip, c_clip, lambda_)
        assert result.targets[:, b].tolist() == pytest.approx(targets, abs=1e-12)
        assert result.advantages[:, b].tolist() == pytest.approx(advantages, abs=1e-12)


def test_vtrace_by_hand():
    # Two steps, gamma 1/2, ratios 2 (clipped to 1) and 1/2.
    # delta_1 = 1/2 (3 + 1/2 * 4 - 2) = 3/2, v_1 = 2 + 3/2 = 7/2
    # delta_0 = 1 (1 + 1/2 * 2 - 1) = 1, v_0 = 1 + 1 + 1/2 * 1 * 3/2 = 11/4
    # A_1 = 1/2 (3 + 1/2 * 4 - 2) = 3/2, A_0 = 1 (1 + 1/2 * 7/2 - 1) = 7/4
    column = lambda *x: torch.tensor(x)[:, None]  # noqa: E731
    result = vtrace(column(2.0, 0.5).log(), column(1.0, 3.0), column(0.5, 0.5), column(1.0, 2.0), bootstrap=torch.tensor([4.0]))
    assert result.targets[:, 0].tolist() == pytest.approx([2.75, 3.5])
    assert result.advantages[:, 0].tolist() == pytest.approx([1.75, 1.5])


def test_on_policy_vtrace_is_the_discounted_return():
    _, reward, _, value, bootstrap = random_streams(seed=1)
    discount = torch.full_like(reward, 0.9)
    result = vtrace(torch.zeros_like(reward), reward, discount, value, bootstrap)
    expected = bootstrap
    for t in reversed(range(len(reward))):
        expected = reward[t] + 0.9 * expected
        assert torch.allclose(result.targets[t], expected)


def test_vtrace_with_lambda_zero_is_the_one_step_td_target():
    _, reward, discount, value, bootstrap = random_streams(seed=2)
    result = vtrace(torch.zeros_like(reward), reward, discount, value, bootstrap, lambda_=0.0)
    assert torch.allclose(result.targets, reward + discount * torch.cat([value[1:], bootstrap[None]]))


def test_a_discount_of_zero_separates_two_episodes_in_one_unroll():
    log_rho, reward, _, value, bootstrap = random_streams(seed=3, length=9)
    discount = torch.full_like(reward, 0.95)
    discount[3] = 0.0
    together = vtrace(log_rho, reward, discount, value, bootstrap)
    first = vtrace(log_rho[:4], reward[:4], discount[:4], value[:4], bootstrap=torch.full_like(bootstrap, 1e9))
    second = vtrace(log_rho[4:], reward[4:], discount[4:], value[4:], bootstrap)
    assert torch.equal(together.targets, torch.cat([first.targets, second.targets]))
    assert torch.equal(together.advantages, torch.cat([first.advantages, second.advantages]))


def test_lambda_return_by_hand():
    # gamma 1/2 throughout, lambda 1/2, but 0 at transition 1.
    # G_2 = 3 + 1/2 * 8 = 7
    # G_1 = 2 + 1/2 * 4 = 4 (lambda 0: the value alone)
    # G_0 = 1 + 1/2 (1/2 * 2 + 1/2 * 4) = 5/2
    column = lambda *x: torch.tensor(x)[:, None]  # noqa: E731
    result = lambda_returns(column(1.0, 2.0, 3.0), column(0.5, 0.5, 0.5), column(2.0, 4.0, 8.0), column(0.5, 0.0, 0.5))
    assert result[:, 0].tolist() == [2.5, 4.0, 7.0]


def test_reverse_lambda_return_by_hand():
    # v = 8, 4, 2 at the states left; gamma 1/2, 1/4, 1; lambda 1/2.
    # G after transition 0: 1 + 1/2 * 8 = 5 (no return before the unroll: the value alone)
    # after 1: 2 + 1/4 (1/2 * 4 + 1/2 * 5) = 3.125
    # after 2: 3 + 1 (1/2 * 2 + 1/2 * 3.125) = 5.5625
    column = lambda *x: torch.tensor(x)[:, None]  # noqa: E731
    half = column(0.5, 0.5, 0.5)
    result = reverse_lambda_returns(column(1.0, 2.0, 3.0), column(0.5, 0.25, 1.0), column(8.0, 4.0, 2.0), half)
    assert result[:, 0].tolist() == [5.0, 3.125, 5.5625]


def test_the_reverse_return_is_the_forward_return_on_flipped_data():
    _, cumulant, discount, value, _ = random_streams(seed=5)
    lambda_ = torch.full_like(value, 0.7)
    reverse = reverse_lambda_returns(cumulant, discount, value, lambda_)
    forward = lambda_returns(cumulant.flip(0), discount.flip(0), value.flip(0), lambda_)
    assert torch.equal(reverse, forward.flip(0))
    previous = value[0]
    for t in range(len(value)):  # And by its own definition, forwards in time.
        previous = cumulant[t] + discount[t] * (0.3 * value[t] + 0.7 * previous)
        assert torch.allclose(reverse[t], previous)
