import pytest
import torch

from learners.optimiser import RMSPropConstants, annealed, global_norm, rmsprop_step, warmed_up


@pytest.mark.parametrize("clip_norm", [1000.0, 2.0])
def test_update_by_hand(clip_norm):
    parameters = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([[-4.0]])]
    moments = [torch.tensor([1.0, 0.0]), torch.tensor([[1.0]])]
    norm = global_norm(gradients)
    assert norm == 5.0
    rmsprop_step(parameters, gradients, moments, 0.1, norm, RMSPropConstants(decay=0.9, eps=0.25, clip_norm=clip_norm))
    scale = min(1.0, clip_norm / 5.0)
    moment = 0.9 + 0.1 * (3 * scale) ** 2
    assert moments[0].tolist() == pytest.approx([moment, 0.0])
    assert parameters[0].tolist() == pytest.approx([1.0 - 0.1 * 3 * scale / (moment + 0.25) ** 0.5, 2.0])
    moment = 0.9 + 0.1 * (4 * scale) ** 2
    assert parameters[1].item() == pytest.approx(3.0 + 0.1 * 4 * scale / (moment + 0.25) ** 0.5)


def test_a_zero_gradient_is_harmless():
    parameters, moments = [torch.ones(3)], [torch.zeros(3)]
    rmsprop_step(parameters, [torch.zeros(3)], moments, 0.1, torch.tensor(0.0), RMSPropConstants(0.9, 1e-4, 40.0))
    assert parameters[0].tolist() == [1.0, 1.0, 1.0]


def test_learning_rate_falls_linearly_to_zero():
    assert [annealed(8.0, frame, 100) for frame in (0, 25, 50, 100, 120)] == [8.0, 6.0, 4.0, 0.0, 0.0]


def test_learning_rate_first_rises():
    assert [warmed_up(8.0, update, 4) for update in (0, 1, 3, 4, 100)] == [2.0, 4.0, 8.0, 8.0, 8.0]
    assert warmed_up(8.0, 0, 0) == 8.0
