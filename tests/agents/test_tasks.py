import pytest
import torch
from torch import nn

from agents.agent import Agent
from agents.batch import Batch
from agents.questions import QuestionNetwork
from agents.tasks import TASKS, AuxiliaryTask, TaskInputs
from agents.tasks.pixel_control import CELLS, pixel_changes, q_targets
from agents.tasks.question_task import future_observations
from configs.tasks import BUILT_IN_TASKS
from envs.stream import EnvSpec
from tests.agents.test_agent import SPEC, random_batch
from tests.agents.test_batch_metrics import alone

TASK_NAMES = [name for name in TASKS if name != "none"]


def build(name, spec=SPEC, num_features=8, **options):
    options = ({"num_questions": 3} if "gvf" in name else {}) | options
    return TASKS[name].build(TASKS[name].Config(**options), spec, num_features)


def test_what_the_command_line_knows_of_the_tasks_agrees_with_the_classes():
    assert list(BUILT_IN_TASKS) == list(TASKS)
    for name, task in TASKS.items():
        known = BUILT_IN_TASKS[name]
        assert (known.config, known.learns_questions, known.draws) == (task.Config, task.learns_questions, task.draws)
        assert task.draws == (task.pictures is not AuxiliaryTask.pictures)
        assert known.trains_torso == (build(name).weight > 0)


def five_steps(first, discount, valid):
    """A batch of one unroll of five steps with the given episode borders."""
    batch = random_batch(time=5, batch=1, valid=torch.tensor(valid)[:, None])
    batch.first.copy_(torch.tensor(first)[:, None])
    batch.discount.copy_(torch.tensor(discount)[:, None])
    return batch


# Observations 0 1 2 | 3 4 5: with action 2 a life is lost, so observation 3 opens another episode of the same game.
LIFE = {"first": [False, False, False, True, False, False], "discount": [1.0, 1.0, 0.0, 1.0, 1.0], "valid": [True] * 5}
# Observations 0 1 2 | 3 4 5: the game is over with action 1, action 2 is ignored, observation 3 is the next game's first.
OVER = {
    "first": [False, False, False, True, False, False],
    "discount": [1.0, 0.0, 0.0, 1.0, 1.0],
    "valid": [True, True, False, True, True],
}
# The same, but the game was truncated: observation 2 is bootstrapped from.
TRUNCATED = OVER | {"discount": [1.0, 1.0, 0.0, 1.0, 1.0]}

CUMULANT = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
DISCOUNT = [0.5, 0.25, 0.5, 0.5, 0.25, 0.5]
ANSWER = [8.0, 4.0, 2.0, 8.0, 4.0, 2.0]


def answer_targets(task, border):
    column = lambda values: torch.tensor(values)[:, None, None]  # noqa: E731
    returns, which, mask = task.targets(column(CUMULANT), column(DISCOUNT), column(ANSWER), five_steps(**border))
    return returns[:, 0, 0].tolist(), which, mask[:, 0].tolist()


@pytest.mark.parametrize(
    ("border", "expected"),
    [
        # lambda 1/2; G_t = c_{t+1} + gamma_{t+1} (v_{t+1} + G_{t+1}) / 2, G_4 = 6 + 1/2 * 2 = 7,
        # G_3 = 5 + 1/4 (4 + 7)/2 = 6.375 in every case.
        # G_2 = 0: what follows is another episode's. G_1 = 3 + 1/2 (2 + 0)/2 = 3.5, G_0 = 2 + 1/4 (4 + 3.5)/2 = 2.9375
        (LIFE, [2.9375, 3.5, 0.0, 6.375, 7.0]),
        # Observation 2 is the game's last: G_1 = 3. G_0 = 2 + 1/4 (4 + 3)/2 = 2.875. G_2 does not count.
        (OVER, [2.875, 3.0, None, 6.375, 7.0]),
        # It is truncated there: G_1 = 3 + 1/2 * 2 = 4, G_0 = 2 + 1/4 (4 + 4)/2 = 3.
        (TRUNCATED, [3.0, 4.0, None, 6.375, 7.0]),
    ],
)
def test_gvf_targets_by_hand(border, expected):
    targets, which, mask = answer_targets(build("gvf", answer_lambda=0.5, scale_cumulants=False), border)
    assert which == slice(None, -1)
    assert mask == [x is not None for x in expected]
    assert [t for t, counts in zip(targets, mask, strict=True) if counts] == [x for x in expected if x is not None]


@pytest.mark.parametrize("border", [LIFE, OVER, TRUNCATED])
def test_reverse_gvf_targets_by_hand(border):
    # lambda 1/2; G_t = c_t + gamma_{t-1} (v_{t-1} + G_{t-1}) / 2, for observations 1 to 5, whatever ended the episode.
    # G_1 = 2 + 1/2 * 8 = 6 (the unroll's first answer is all there is), G_2 = 3 + 1/4 (4 + 6)/2 = 4.25
    # G_3 = 0: an episode's first state. G_4 = 5 + 0: nothing came before observation 3.
    # G_5 = 6 + 1/4 (4 + 5)/2 = 7.125
    targets, which, mask = answer_targets(build("reverse_gvf", answer_lambda=0.5, scale_cumulants=False), border)
    assert which == slice(1, None)
    assert all(mask)
    assert targets == [6.0, 4.25, 0.0, 5.0, 7.125]


@pytest.mark.parametrize("name", ["gvf", "reverse_gvf"])
def test_scaled_cumulants_make_answers_averages_of_cumulants(name):
    task = build(name, answer_lambda=1.0)
    ones = torch.ones(6, 1, 3)
    discount = torch.rand(6, 1, 3)
    border = {"first": [False] * 6, "discount": [1.0] * 5, "valid": [True] * 5}
    returns, _, _ = task.targets(ones, discount, ones, five_steps(**border))
    assert torch.allclose(returns, torch.ones_like(returns))


@pytest.mark.parametrize("name", ["gvf", "reverse_gvf"])
def test_targets_do_not_leak_across_episode_borders(name):
    """Neither cumulants, nor discounts, nor answers of one episode change the other's targets."""
    task = build(name)
    generator = torch.Generator().manual_seed(0)
    arrays = [torch.rand(6, 1, 3, generator=generator) for _ in range(3)]
    for border, last_of_old in ((LIFE, 2), (OVER, 2), (TRUNCATED, 2)):
        batch = five_steps(**border)
        targets, which, mask = task.targets(*arrays, batch)
        index = torch.arange(6)[which]
        for changed in (range(last_of_old + 1), range(last_of_old + 1, 6)):
            others = [x.clone() for x in arrays]
            for x in others:
                x[list(changed)] += 0.1
            moved, _, _ = task.targets(*others, batch)
            different = (moved != targets).any(-1)[:, 0] & mask[:, 0]
            assert set(index[different].tolist()) <= set(changed)
            assert different.any()


class Chain:
    """A small ergodic Markov chain; each state is observed as an image of its own."""

    transition = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.3, 0.3, 0.4]], dtype=torch.float64)
    cumulant = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)
    discount = torch.tensor([0.9, 0.5, 0.7], dtype=torch.float64)
    spec = EnvSpec(num_actions=2, frame_shape=(1, 20, 20), stack=1, frames_per_step=1)

    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)
        self.images = torch.zeros(3, 1, 20, 20, dtype=torch.uint8)
        for state in range(3):
            self.images[state, :, :, 6 * state : 6 * state + 6] = 255
        self.states = torch.zeros(16, dtype=torch.long)

    def batch(self, time=20):
        history = [self.states]
        for _ in range(time):
            weights = self.transition[history[-1]]
            history.append(torch.multinomial(weights, 1, generator=self.generator).squeeze(1))
        self.states = history[-1]
        states = torch.stack(history)
        shape = (time, len(self.states))
        return Batch(
            stack=self.images[states[0]],
            frames=self.images[states[1:]],
            first=torch.zeros(time + 1, shape[1], dtype=torch.bool),
            action=torch.zeros(shape, dtype=torch.long),
            reward=torch.zeros(shape),
            discount=torch.ones(shape),
            valid=torch.ones(shape, dtype=torch.bool),
            logits=torch.zeros(*shape, 2),
            core_state=torch.zeros(shape[1], 0),
            version=torch.zeros(shape[1], dtype=torch.long),
        )

    def questions(self):
        """A question network that gives the chain's cumulants and discounts, from pixels alone."""
        chain = self

        class Known(nn.Module):
            calibrated = True

            def forward(self, pixels, ranks):
                state = pixels[:, 0, 0, :].float().argmax(-1) // 6
                return chain.cumulant[state].float()[:, None], chain.discount[state].float()[:, None]

        return Known()

    def gvf(self):
        """v = P (c + Gamma v)"""
        P, gamma = self.transition, torch.diag(self.discount)
        return torch.linalg.solve(torch.eye(3, dtype=P.dtype) - P @ gamma, P @ self.cumulant)

    def reverse_gvf(self):
        """v = c + R Gamma v, where R[s, s'] = d(s') P[s', s] / d(s) is the chain read backwards."""
        P, gamma = self.transition, torch.diag(self.discount)
        d = torch.linalg.matrix_power(P, 200)[0]
        backwards = (P * d[:, None]).T / d[:, None]
        return torch.linalg.solve(torch.eye(3, dtype=P.dtype) - backwards @ gamma, self.cumulant)


@pytest.mark.parametrize("lambda_", [0.0, 0.9])
@pytest.mark.parametrize("name", ["gvf", "reverse_gvf"])
def test_answers_converge_to_the_closed_form_on_a_chain_observed_as_images(name, lambda_):
    chain = Chain()
    torch.manual_seed(0)
    agent = Agent(chain.spec, "shallow")
    options = {"num_questions": 1, "answer_lambda": lambda_, "scale_cumulants": False}
    task = build(name, chain.spec, agent.torso.num_features, **options)
    task.questions = chain.questions()
    optimiser = torch.optim.Adam([*agent.torso.parameters(), *task.answers.parameters()], lr=1e-3)
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.02, total_iters=250)
    for _ in range(250):
        batch = chain.batch()
        unroll = agent.unroll(batch)
        prediction = task.predict(unroll.features, batch)
        inputs = TaskInputs(batch, unroll.observations, task.ask(unroll.pixels, batch))
        result = task.loss(prediction, prediction.detach(), inputs)
        optimiser.zero_grad()
        (result.loss * result.mask).mean().backward()
        optimiser.step()
        rate.step()
    found = task.answers(agent.torso(agent.preprocess(chain.images)))[:, 0]
    expected = getattr(chain, name)().float()
    assert (expected.max() - expected.min()) > 0.15
    assert torch.allclose(found, expected, atol=0.06)


def test_future_observations_stay_within_the_episode_and_the_unroll():
    batch = five_steps(**LIFE)
    observations = torch.arange(6)[:, None]
    assert future_observations(observations, batch, depth=4)[:, 0].tolist() == [2, 2, 2, 5, 5, 5]
    assert future_observations(observations, batch, depth=1)[:, 0].tolist() == [1, 2, 2, 4, 5, 5]


def random_pixels():
    """Preprocessed observations [N, S * C, H, W]."""
    return Agent(SPEC, "shallow").unroll(random_batch()).pixels.flatten(0, 1)


def test_calibrated_questions_vary_between_observations():
    network = QuestionNetwork("shallow", SPEC.observation_shape, 8, normalise=False)
    pixels = random_pixels()
    network.calibrate(pixels)
    cumulant, discount = network(pixels)
    assert (cumulant.std(0) > 0.2).all()
    assert (cumulant.abs() < 1).all()
    horizon = (1 / (1 - discount).mean(0)).tolist()
    assert horizon[0] == pytest.approx(2, rel=0.3)
    assert horizon[-1] == pytest.approx(50, rel=0.3)
    assert ((discount > 0) & (discount < 1)).all()


@pytest.mark.parametrize("normalise", [True, False])
def test_normalised_cumulants_are_never_constant(normalise):
    network = QuestionNetwork("shallow", SPEC.observation_shape, 8, normalise)
    pixels = random_pixels()
    network.calibrate(pixels)
    with torch.no_grad():
        network.cumulant.bias.add_(100)
        network.cumulant.weight.mul_(100)
    cumulant, _ = network(pixels)
    z = (cumulant * torch.pi / 2).tan()
    assert torch.allclose(z.mean(0), torch.zeros(8), atol=1e-3) == normalise
    assert torch.allclose(z.std(0, correction=0), torch.ones(8), atol=1e-3) == normalise


def test_pixel_changes_by_hand():
    observations = torch.zeros(3, 1, 2, 84, 84, dtype=torch.uint8)
    observations[1, 0, -1, 2:6, 2:4] = 255  # Half of the first cell, inside the margin of two pixels.
    observations[1, 0, 0] = 255  # Older frames are ignored.
    observations[1, 0, -1, 0] = 255  # The margin is cropped.
    change = pixel_changes(observations, channels=1)
    assert change.shape == (2, 1, CELLS, CELLS)
    assert change[0, 0, 0, 0] == 0.5
    assert change[1, 0, 0, 0] == 0.5
    assert change.sum() == 1.0


def test_pixel_control_targets_by_hand():
    # One cell, two actions, three steps, discount 1/2; the game is truncated after step 0, step 1 is invalid.
    q = torch.tensor([[0.0, 1.0], [4.0, 2.0], [0.0, 0.0], [6.0, 8.0]])[:, None, :, None, None]
    reward = torch.tensor([1.0, 100.0, 3.0])[:, None, None, None]
    discount = torch.tensor([0.5, 0.0, 0.5])[:, None]
    valid = torch.tensor([True, False, True])[:, None]
    target = q_targets(reward, discount, valid, q).flatten().tolist()
    assert target[0] == 1 + 0.5 * 4
    assert target[2] == 3 + 0.5 * 8
    # Without a border the discounted rewards add up: 1 + 1/2 (2 + 1/2 (3 + 1/2 * 8)).
    reward[1] = 2.0
    whole = q_targets(reward, torch.full((3, 1), 0.5), torch.ones(3, 1, dtype=torch.bool), q)
    assert whole.flatten()[0].item() == 1 + 0.5 * (2 + 0.5 * (3 + 0.5 * 8))


def test_pixel_control_is_dueling():
    """The advantages are centred, so that Q's mean over the actions is the value plane."""
    task = build("pixel_control")
    features = torch.randn(2, 1, 8)
    q = task.predict(features, random_batch(time=1, batch=1))
    assert q.shape == (2, 1, 3, CELLS, CELLS)
    planes = task.deconv(torch.relu(task.linear(features.flatten(0, 1))).unflatten(1, (32, 9, 9)))
    assert torch.allclose(q.mean(2).flatten(0, 1), planes[:, 0], atol=1e-6)


def test_reward_prediction_classifies_the_taken_actions_reward():
    task = build("reward_prediction")
    batch = random_batch(time=3, batch=1)
    batch.reward[:, 0] = torch.tensor([-7.0, 0.0, 0.5])
    logits = torch.full((4, 1, 3, 3), -20.0)
    for t, sign in enumerate((0, 1, 2)):
        logits[t, 0, batch.action[t, 0], sign] = 20.0
    right = task.loss(logits, logits, TaskInputs(batch, batch.observations()))
    assert right.loss.max() < 1e-6
    assert alone(right.metrics["auxiliary/accuracy"]) == 1
    wrong = task.loss(logits.flip(-1), logits, TaskInputs(batch, batch.observations()))
    assert wrong.loss[:, 0].tolist() == pytest.approx([40.0, 0.0, 40.0])
    assert alone(wrong.metrics["auxiliary/accuracy_on_rewards"]) == 0


def test_reward_prediction_regresses_the_clipped_reward():
    task = build("reward_prediction", reward_prediction_target="value")
    batch = random_batch(time=2, batch=1)
    batch.reward[:, 0] = torch.tensor([-7.0, 0.5])
    loss = task.loss(torch.zeros(3, 1, 3, 1), torch.zeros(3, 1, 3, 1), TaskInputs(batch, batch.observations())).loss
    assert loss[:, 0].tolist() == [0.5, 0.125]


@pytest.mark.parametrize("name", TASK_NAMES)
def test_pictures_are_rgb_images(name):
    batch = random_batch()
    agent = Agent(SPEC, "shallow")
    task = build(name, num_features=agent.torso.num_features)
    with torch.no_grad():
        unroll = agent.unroll(batch)
        prediction = task.predict(unroll.features, batch)
        inputs = TaskInputs(batch, unroll.observations, task.ask(unroll.pixels, batch))
    images = task.pictures(prediction, unroll.pixels, inputs)
    for image in images.values():
        assert image.ndim == 3
        assert image.shape[2] == 3
        assert image.std() > 0
    assert bool(images) == (name != "reward_prediction")
    cards = {name: image.shape[1] for name, image in images.items() if "/" in name}
    assert cards == (dict.fromkeys(("questions/1", "questions/2", "questions/3"), 340) if "gvf" in name else {})
