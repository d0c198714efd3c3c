import math

import pytest
import torch

from agents.batch import Batch
from learners.learner import Learner, NonFiniteError
from learners.losses import impala_loss
from tests.agents.test_agent import SPEC, random_batch
from tests.agents.test_returns import literal_vtrace


def literal_loss(learner, batch: Batch, config):
    """IMPALA's summed loss, column by column and step by step."""
    unroll = learner.agent.unroll(batch)
    log_pi, log_mu = unroll.logits.log_softmax(-1), batch.logits.log_softmax(-1)
    total = torch.zeros(())
    time, width = batch.action.shape
    for b in range(width):
        log_rho = [(log_pi[t, b, batch.action[t, b]] - log_mu[t, b, batch.action[t, b]]).item() for t in range(time)]
        log_rho = [x if batch.valid[t, b] else -math.inf for t, x in enumerate(log_rho)]
        values = unroll.value[:, b].tolist()
        targets, advantages = literal_vtrace(
            log_rho,
            [max(-1.0, min(1.0, r)) for r in batch.reward[:, b].tolist()],
            [config.discount * d for d in batch.discount[:, b].tolist()],
            values[:-1],
            values[-1],
            rho_clip=1.0,
            c_clip=1.0,
            lambda_=config.vtrace_lambda,
        )
        for t in range(time):
            if not batch.valid[t, b]:
                continue
            total = total - advantages[t] * log_pi[t, b, batch.action[t, b]]
            total = total + config.value_cost * 0.5 * (targets[t] - unroll.value[t, b]) ** 2
            total = total + config.entropy_cost * (log_pi[t, b].exp() * log_pi[t, b]).sum()
    return total


@pytest.mark.parametrize("clip_norm", [1e-2, 1e6])
def test_weights_after_one_step_equal_the_hand_written_update(make_config, clip_norm):
    """With a learning rate so large that even a clipped step of the torso is far above the rounding of its weights."""
    config = make_config(clip_norm=clip_norm, learning_rate=10.0, batch_size=2, unroll=6, frames=4800, warm_up_updates=4)
    learner, reference = Learner(config, SPEC), Learner(config, SPEC)
    valid = torch.ones(6, 2, dtype=torch.bool)
    valid[3, 1] = False
    batch = random_batch(valid=valid)
    learner.frame = reference.frame = 2400
    reference.agent.set_background(batch.frames)
    loss = literal_loss(reference, batch, config.learner)
    parameters = list(reference.agent.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
    scale = min(1.0, clip_norm / norm)
    before = [p.detach().clone() for p in parameters]

    metrics = learner.step(batch)

    assert metrics["optimiser/gradient_norm"] == pytest.approx(norm, rel=1e-4)
    assert metrics["optimiser/learning_rate"] == config.learner.learning_rate / 2 / 4
    for parameter, old, gradient in zip(learner.agent.parameters(), before, gradients, strict=True):
        g = scale * gradient
        moment = 0.99 * config.learner.rmsprop_initial_moment + 0.01 * g**2
        step = config.learner.learning_rate / 2 / 4 * g / (moment + config.learner.rmsprop_eps).sqrt()
        assert step.norm() > 0
        assert (old - step - parameter.detach()).norm() < 1e-3 * step.norm()
    assert learner.version == 1
    assert learner.frame == 2400 + 6 * 2 * SPEC.frames_per_step


def test_termination_cuts_the_return_and_truncation_bootstraps(make_config):
    config = make_config(discount=0.5, batch_size=2, unroll=6)
    learner = Learner(config, SPEC)
    batch = random_batch()
    unroll = learner.agent.unroll(batch)._replace(value=torch.full((7, 2), 10.0))
    batch.logits.copy_(unroll.logits[:-1].detach())  # On-policy.
    batch.reward.zero_()
    for end_discount, expected in ((0.0, 0.0), (1.0, 5.0)):
        batch.discount.fill_(1.0)
        batch.discount[2] = end_discount  # The game ended with action 2: observation 3 is its last,
        batch.discount[3] = 0.0  # and action 3 is ignored, its successor being another game's first.
        batch.valid[3] = False
        loss = impala_loss(unroll.logits, unroll.value, unroll.logits, unroll.value, batch, config.learner)
        assert loss.vtrace.targets[2].tolist() == [expected, expected]


def test_ignored_steps_teach_nothing(make_config):
    config = make_config(batch_size=2, unroll=6)
    valid = torch.ones(6, 2, dtype=torch.bool)
    valid[3] = False
    one, other = random_batch(valid=valid), random_batch(valid=valid)
    other.action[3] = (other.action[3] + 1) % 3
    other.reward[3] += 100
    other.logits[3] += torch.randn(2, 3)
    learners = [Learner(config, SPEC) for _ in range(2)]
    for learner, batch in zip(learners, (one, other), strict=True):
        learner.step(batch)
    assert torch.equal(learners[0].weights(), learners[1].weights())


def test_nan_stops_before_the_update_and_names_the_culprit(make_config):
    learner = Learner(make_config(batch_size=2, unroll=6), SPEC)
    learner.step(random_batch())
    before = learner.weights()
    batch = random_batch(seed=1)
    batch.reward[0, 0] = math.nan
    with pytest.raises(NonFiniteError, match=r"the policy loss is nan at update 2, frame 48"):
        learner.step(batch)
    assert torch.equal(learner.weights(), before)
    assert learner.version == 1


def test_the_background_is_that_of_the_first_batch(make_config):
    learner = Learner(make_config(batch_size=2, unroll=6), SPEC)
    first = random_batch()
    for batch in (first, random_batch(seed=1)):
        learner.step(batch)
    assert torch.allclose(learner.agent.background, first.frames.float().mean((0, 1)))
    other = Learner(make_config(batch_size=2, unroll=6), SPEC)
    other.load_state_dict(learner.state_dict())
    assert torch.equal(other.agent.background, learner.agent.background)


def test_state_goes_there_and_back_and_refuses_another_network(make_config):
    config = make_config(batch_size=2, unroll=6)
    learner, copy = Learner(config, SPEC), Learner(make_config(batch_size=2, unroll=6, seed=2), SPEC)
    learner.step(random_batch())
    copy.load_state_dict(learner.state_dict())
    for each in (learner, copy):
        each.step(random_batch(seed=1))
    assert torch.equal(learner.weights(), copy.weights())
    assert (learner.frame, learner.version) == (copy.frame, copy.version)
    with pytest.raises(ValueError, match="agent"):
        Learner(make_config(torso="nature"), SPEC).load_state_dict(learner.state_dict())
