"""The example tasks: by hand over episode borders, through a checkpoint, on several ranks, and trained on Catch."""

import json
import threading

import hindcast_tasks
import pytest
import torch
from hindcast_tasks.horizons import HorizonsConfig
from hindcast_tasks.self_prediction import SelfPredictionConfig
from torch import nn

from agents.tasks import TaskInputs
from agents.torsos import Torso
from configs.errors import ConfigError
from learners.learner import Learner
from tests.agents.test_agent import SPEC, random_batch
from tests.agents.test_tasks import ANSWER, LIFE, OVER, TRUNCATED, five_steps
from tests.command_line.refusal import refusal
from tests.examples.conftest import PACKAGE
from tests.training.test_loop import assert_same_run
from training.loop import train

NAMES = [f"hindcast_tasks:{name}" for name in hindcast_tasks.__all__]


def inputs_of(batch, pixels=None):
    return TaskInputs(batch, batch.observations(), (), pixels)


def test_each_file_is_below_100_lines():
    files = list((PACKAGE / "hindcast_tasks").glob("*.py"))
    assert len(files) == 4
    assert all(path.read_text().count("\n") < 100 for path in files)


@pytest.mark.parametrize(("border", "mask"), [(LIFE, [1, 1, 0, 1, 1]), (OVER, [1, 1, 0, 1, 1])])
def test_inverse_dynamics_leaves_out_actions_that_led_to_another_episode(border, mask):
    task = hindcast_tasks.InverseDynamics(hindcast_tasks.InverseDynamics.Config(), 4, num_actions=2)
    batch = five_steps(**border)
    batch.action[:, 0] = torch.tensor([0, 1, 0, 1, 1])
    logits = torch.tensor([[0.0, 0.0], [0.0, 3.0], [9.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).log_softmax(-1)[:, None]
    found = task.loss(logits, logits, inputs_of(batch))
    assert found.mask[:, 0].tolist() == list(map(bool, mask))
    by_hand = [0.6931, 0.0486, 0.0001, 0.3133, 1.3133]  # log(1 + exp(other - taken))
    assert found.loss[:, 0].tolist() == pytest.approx(by_hand, abs=1e-4)
    assert task.predict(torch.randn(6, 2, 4), batch).shape == (5, 2, 2)


@pytest.mark.parametrize(
    ("border", "targets"),
    [
        # Rewards of 1, halved by 1 - gamma = 1/2, and lambda 1; the last step bootstraps from the value 2.
        (OVER, [0.75, 0.5, 0.0, 1.25, 1.5]),
        (TRUNCATED, [1.25, 1.5, 0.0, 1.25, 1.5]),  # From the value 2 of the last state before the end.
        (LIFE, [0.875, 0.75, 0.5, 1.25, 1.5]),
    ],
)
def test_horizons_bootstrap_at_truncations_only(border, targets):
    config = HorizonsConfig(num_horizons=2, shortest_horizon=2.0, longest_horizon=10.0, horizons_lambda=1.0)
    task = hindcast_tasks.Horizons(config, num_features=4)
    assert task.discounts.tolist() == pytest.approx([0.5, 0.9])
    batch = five_steps(**border)
    batch.reward.copy_(batch.valid.float() * 7)  # Clipped to 1.
    values = torch.tensor(ANSWER)[:, None, None].expand(6, 1, 2)
    assert task.targets(values, batch)[:, 0, 0].tolist() == pytest.approx(targets)
    found = task.loss(values, values, inputs_of(batch))
    assert found.mask[:, 0].tolist() == border["valid"]
    errors = values[:-1] - task.targets(values, batch)
    assert torch.allclose(found.loss, (errors**2).sum(-1) / 4)


def test_horizons_that_are_none_are_refused(capsys, signals):
    complaint = "--shortest-horizon must be at least 1 and at most --longest-horizon"
    with pytest.raises(ConfigError, match=complaint):
        HorizonsConfig(shortest_horizon=0.5)
    line = refusal(capsys, "train", "--task", "hindcast_tasks:Horizons", "--shortest-horizon", "0.5")
    assert line.startswith(f"launch.py: {complaint}")


def self_prediction(**settings):
    return hindcast_tasks.SelfPrediction(SelfPredictionConfig(**settings), num_features=4, num_actions=3)


def test_self_prediction_ends_at_the_episode_and_at_the_unroll():
    """Two steps from every observation but the last; the cosine with (1, 0) is the first coordinate of the target's latent."""
    task = self_prediction(prediction_steps=2)
    task.target = nn.Identity()
    cosine = torch.tensor([9.0, 0.6, 0.8, 9.0, -0.6, 0.0])  # 9: of observations that no prediction reaches.
    pixels = torch.stack([cosine, (1 - cosine**2).clamp(min=0).sqrt()], -1)[:, None]
    prediction = torch.tensor([2.0, 0.0]).expand(5, 1, 2, 2)
    found = task.loss(prediction, prediction, inputs_of(five_steps(**LIFE), pixels))
    assert found.mask[:, 0].tolist() == [True, True, False, True, True]
    assert found.loss[:, 0].tolist() == pytest.approx([(0.4 + 0.2) / 2, 0.2 / 2, 0, (1.6 + 1.0) / 2, 1.0 / 2])


def test_self_prediction_rolls_out_with_the_actions_taken():
    task, batch = self_prediction(prediction_steps=2), random_batch(time=5, batch=1)
    features = torch.rand(6, 1, 4)
    before = task.predict(features, batch)
    assert before.shape == (5, 1, 2, 128)
    batch.action[3] = (batch.action[3] + 1) % 3
    changed = (task.predict(features, batch) != before).any(-1)[:, 0].tolist()
    assert changed == [[False, False], [False, False], [False, True], [True, True], [False, False]]
    latent = torch.relu(features[2] + task.transition(torch.cat([features[2], torch.eye(3)[batch.action[2]]], -1)))
    assert torch.allclose(task.predict(features, batch)[2, :, 0], task.predictor(task.projection(latent)), atol=1e-6)


def test_the_target_network_follows_the_torso_and_no_gradient(make_config):
    config = make_config(task="hindcast_tasks:SelfPrediction", target_momentum=0.75, learning_rate=1e-2)
    learner = Learner(config, SPEC)
    names = learner._objective.names
    assert not [name for name in names if "target" in name]
    start = [parameter.clone() for parameter in learner.task.target.parameters()]
    assert all(map(torch.equal, start, [*learner.agent.torso.parameters(), *learner.task.projection.parameters()]))
    assert isinstance(learner.task.target[0], Torso)
    learner.step(random_batch(batch=4, time=5))
    after = [*learner.agent.torso.parameters(), *learner.task.projection.parameters()]
    for found, old, new in zip(learner.task.target.parameters(), start, after, strict=True):
        assert not torch.equal(old, new)
        assert torch.allclose(found, 0.75 * old + 0.25 * new, atol=1e-7)
    other = Learner(config, SPEC)
    other.load_state_dict(learner.state_dict())
    assert other.checksum() == learner.checksum()
    next(other.task.target.parameters()).data.add_(1)
    assert other.checksum() != learner.checksum()


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_equals_an_uninterrupted_one(make_config, tmp_path, never, name):
    whole, broken = (make_config(task=name, frames=200, run_dir=str(tmp_path / which)) for which in ("whole", "broken"))
    train(whole, never)
    stop, step = threading.Event(), Learner.step

    def stopped(self, batch):
        if self.version == 4:
            stop.set()
        return step(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "step", stopped)
        assert train(broken, stop) is None
    train(broken.with_run(resume=True), never)
    assert_same_run(whole, broken)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_catch_is_learnt_to_near_its_optimum(make_config, never, name):
    """The optimum is 1."""
    config = make_config(
        task=name, frames=100_000, batch_size=16, unroll=9, learning_rate=2e-3, log_frames=10_000, eval_episodes=100
    )
    result = train(config, never)
    lines = [json.loads(line) for line in (config.run_path / "metrics.jsonl").read_text().splitlines()]
    assert result["evaluation"]["mean"] > 0.9
    assert lines[-1]["losses/auxiliary"] < lines[0]["losses/auxiliary"]
