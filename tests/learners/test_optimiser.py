import pytest
import torch

from learners.optimiser import Adam, OptimiserState, RMSProp, annealed, global_norm, warmed_up


@pytest.mark.parametrize("clip_norm", [1000.0, 2.0])
def test_update_by_hand(clip_norm):
    parameters = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([[-4.0]])]
    moments = [torch.tensor([1.0, 0.0]), torch.tensor([[1.0]])]
    norm = global_norm(gradients)
    assert norm == 5.0
    RMSProp(decay=0.9, eps=0.25, clip_norm=clip_norm).step(
        parameters, gradients, OptimiserState({"moment": moments}), 0.1, norm
    )
    scale = min(1.0, clip_norm / 5.0)
    moment = 0.9 + 0.1 * (3 * scale) ** 2
    assert moments[0].tolist() == pytest.approx([moment, 0.0])
    assert parameters[0].tolist() == pytest.approx([1.0 - 0.1 * 3 * scale / (moment + 0.25) ** 0.5, 2.0])
    moment = 0.9 + 0.1 * (4 * scale) ** 2
    assert parameters[1].item() == pytest.approx(3.0 + 0.1 * 4 * scale / (moment + 0.25) ** 0.5)


def test_a_zero_gradient_is_harmless():
    for optimiser in (RMSProp(0.9, 1e-4, 40.0), Adam(0.9, 0.999, 1e-4, 40.0)):
        parameters = [torch.ones(3)]
        optimiser.step(parameters, [torch.zeros(3)], optimiser.init(parameters), 0.1, torch.tensor(0.0))
        assert parameters[0].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("clip_norm", [1000.0, 2.0])
def test_adam_by_hand(clip_norm):
    adam = Adam(beta1=0.5, beta2=0.75, eps=0.25, clip_norm=clip_norm)
    parameters = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]
    state = adam.init(parameters)
    scale = min(1.0, clip_norm / 5.0)
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([[-4.0]])]
    adam.step(parameters, gradients, state, 0.1, global_norm(gradients))
    g = 3 * scale
    first = 1.0 - 0.1 * g / (g**2 + 0.25) ** 0.5  # Without bias: the moments are g and g^2.
    assert parameters[0].tolist() == pytest.approx([first, 2.0])
    adam.step(parameters, [-gradient for gradient in gradients], state, 0.1, global_norm(gradients))
    mean, square = (0.5 * 0.5 * g - 0.5 * g) / (1 - 0.25), g**2
    assert parameters[0].tolist() == pytest.approx([first - 0.1 * mean / (square + 0.25) ** 0.5, 2.0])
    assert state.updates == 2
    assert state.moments["moment"][0].tolist() == pytest.approx([(0.75 * 0.25 + 0.25) * g**2, 0.0])


def test_adam_equals_torchs_where_epsilon_is_small():
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.randn(4, generator=generator, dtype=torch.float64)  # noqa: E731
    ours, theirs = [draw()], torch.nn.Parameter(torch.empty(4, dtype=torch.float64))
    theirs.data.copy_(ours[0])
    adam, reference = Adam(0.9, 0.999, 1e-30, 1e6), torch.optim.Adam([theirs], lr=0.01, eps=1e-15)
    state = adam.init(ours)
    for _ in range(20):
        theirs.grad = draw()
        adam.step(ours, [theirs.grad], state, 0.01, global_norm([theirs.grad]))
        reference.step()
    assert torch.allclose(ours[0], theirs.detach(), rtol=1e-12)


def test_learning_rate_falls_linearly_to_zero():
    assert [annealed(8.0, frame, 100) for frame in (0, 25, 50, 100, 120)] == [8.0, 6.0, 4.0, 0.0, 0.0]


def test_learning_rate_first_rises():
    assert [warmed_up(8.0, update, 4) for update in (0, 1, 3, 4, 100)] == [2.0, 4.0, 8.0, 8.0, 8.0]
    assert warmed_up(8.0, 0, 0) == 8.0
