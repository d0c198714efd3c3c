"""Metrics of a batch, by hand and split over ranks."""

import pytest
import torch

from agents.metrics import Metric, evaluate, explained_variance, maximum, mean, ratio, relative_error, spread
from agents.ranks import ONE_RANK


def alone(metric):
    return evaluate({"metric": metric}, ONE_RANK)["metric"]


def together(*parts):
    """The metric of a batch of which `parts` are the ranks' shares."""
    return alone(Metric(sum(part.sums for part in parts), parts[0].value))


def test_means_count_the_steps_in_the_mask():
    values = torch.tensor([[1.0, 2.0], [3.0, torch.inf]])
    mask = torch.tensor([[True, True], [True, False]])
    assert alone(mean(values, mask)) == 2.0
    assert alone(mean(values[:1])) == 1.5
    assert torch.tensor(alone(mean(values, ~mask & False))).isnan()


def test_means_of_vectors_average_over_their_components():
    assert alone(mean(torch.tensor([[[1.0, 3.0]], [[5.0, 7.0]]]), torch.tensor([[True], [False]]))) == 2.0


def test_ratio_and_maximum():
    assert alone(ratio(torch.tensor(3.0), torch.tensor(4))) == 0.75
    assert alone(maximum(torch.tensor([2.0, 5.0]), ONE_RANK)) == 5.0


@pytest.mark.filterwarnings("error")
def test_explained_variance():
    target = torch.tensor([1.0, 2.0, 3.0])
    assert alone(explained_variance(target, target)) == 1.0
    assert alone(explained_variance(torch.zeros(3), target)) == pytest.approx(0.0)
    for prediction, constant in ((target, torch.full((3,), 0.1)), (torch.empty(0), torch.empty(0))):
        assert torch.tensor(alone(explained_variance(prediction, constant))).isnan()


def test_relative_error_of_the_best_constant_is_one():
    target = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    assert alone(relative_error(target.mean(0) - target, target)) == pytest.approx(1.0)


@pytest.mark.filterwarnings("error")
def test_relative_error_leaves_out_constant_targets():
    target = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    assert alone(relative_error(torch.tensor([[0.0, 9.0], [2.0, 9.0]]), target)) == pytest.approx(2.0)
    for steps in (0, 1):
        assert torch.tensor(alone(relative_error(torch.ones(steps, 2), torch.ones(steps, 2)))).isnan()


def test_spread_averages_standard_deviations():
    assert alone(spread(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))) == pytest.approx((1 + 10) / 2)


@pytest.mark.parametrize("metric", [explained_variance, relative_error, lambda x, y: spread(x), lambda x, y: mean(x)])
def test_parts_of_a_batch_give_the_metric_of_the_whole(metric):
    torch.manual_seed(0)
    columns = () if metric is explained_variance else (3,)
    prediction, target = torch.randn(2, 12, *columns, dtype=torch.float64) + 5
    parts = [metric(prediction[rows], target[rows]) for rows in (slice(0, 5), slice(5, 12))]
    assert together(*parts) == pytest.approx(alone(metric(prediction, target)), rel=1e-12)
