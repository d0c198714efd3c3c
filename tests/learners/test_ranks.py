"""N ranks on parts of a batch equal one rank on the whole batch."""

import threading
from dataclasses import replace

import pytest
import torch

from agents.questions import normalised
from agents.ranks import ONE_RANK
from agents.tasks import TASKS
from configs.errors import NonFiniteError
from envs.stream import EnvSpec
from learners.learner import Learner
from tests.agents.test_agent import random_batch
from tests.helpers.ranks import on_ranks, part_of

SPEC = EnvSpec(num_actions=3, frame_shape=(1, 20, 20), stack=4, frames_per_step=4)
BATCH, TIME = 6, 6
PRECISION = 1e-10
DRAWING = threading.Lock()


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def batches(count, lstm_size=0):
    """With ends of games and lost lives, unevenly over the ranks."""
    for seed in range(count):
        valid = torch.ones(TIME, BATCH, dtype=torch.bool)
        valid[seed % 5 + 1, seed % 2] = valid[2, 1] = False
        batch = random_batch(SPEC, TIME, BATCH, lstm_size, seed, valid)
        batch.first[2, BATCH - 1] = True
        batch.discount[1, BATCH - 1] = 0.0
        versions = torch.arange(BATCH) % 2 * -1
        yield replace(batch, core_state=batch.core_state.double(), version=versions)


def build(config, rank):
    with DRAWING:  # Threads share the generator that draws the first weights.
        return Learner(config, SPEC, rank)


def train(config, rank, count):
    """The learner after `count` updates on the rank's parts of the batches, and the metrics of each."""
    learner = build(config, rank)
    metrics = [learner.step(part_of(batch, rank)) for batch in batches(count, config.agent.lstm_size)]
    for line in metrics:
        line.pop("meta/seconds", None)
    return learner, metrics


def assert_same(found, expected):
    for name, value in expected.items():
        error = torch.linalg.vector_norm((found[name].double() - value.double()).flatten())
        assert error <= PRECISION * torch.linalg.vector_norm(value.double().flatten()) + 1e-14, name


def assert_ranks_equal_one(config, size, updates):
    alone, expected = train(config, ONE_RANK, updates)
    results = on_ranks(size, lambda rank: train(config, rank, updates))
    for learner, metrics in results:
        assert (learner.frame, learner.version) == (alone.frame, alone.version)
        for found, line in zip(metrics, expected, strict=True):
            assert found == pytest.approx(line, rel=PRECISION, abs=1e-13, nan_ok=True)
    for learner, _ in results[1:]:
        assert torch.equal(learner.weights(), results[0][0].weights())
    states = on_ranks(size, lambda rank: rebound(results[rank.rank][0], rank).state_dict())
    assert_same(states[0], alone.state_dict())
    return states[0]


def rebound(learner, rank):
    """The learner, for threads that meet anew."""
    learner._ranks = learner.task.ranks = rank
    if learner._meta is not None:
        learner._meta._ranks = learner._meta._window._ranks = rank
    return learner


SMALL = {"batch_size": BATCH, "unroll": TIME, "num_questions": 3, "rmsprop_eps": 1e-3, "frames": 10_000}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", [2, 3])
def test_training_with_every_task(make_config, task, size):
    assert_ranks_equal_one(make_config(task=task, meta_interval=2, **SMALL), size, updates=5)


def test_training_with_a_target_network(make_config, plugged):
    state = assert_ranks_equal_one(make_config(task=f"{plugged}:NextReward", **SMALL), 2, updates=5)
    assert any(name.startswith("parameter.task.target.") for name in state)


@pytest.mark.parametrize("clip_norm", [1e-2, 1e6])
@pytest.mark.parametrize(("interval", "period"), [(1, 0), (2, 0), (5, 0), (2, 5)])
@pytest.mark.parametrize("task", ["gvf", "reverse_gvf"])
def test_meta_gradient(make_config, task, interval, period, clip_norm):
    """The questions are as they would be with one rank, after a window and one more update."""
    config = make_config(
        task=task, meta_interval=interval, meta_period=period, meta_learning_rate=1e-2, clip_norm=clip_norm, **SMALL
    )
    updates = config.auxiliary.question_period + 2
    first = Learner(config, SPEC).state_dict()
    state = assert_ranks_equal_one(config, 2, updates)
    assert any(not torch.equal(state[name], value) for name, value in first.items() if "question.torso" in name)


@pytest.mark.parametrize("clip_norm", [1e-2, 1e6])
@pytest.mark.parametrize("interval", [1, 2, 5])
def test_meta_gradient_through_adam(make_config, interval, clip_norm):
    options = {**SMALL, "optimiser": "adam", "meta_interval": interval, "meta_learning_rate": 1e-2, "clip_norm": clip_norm}
    del options["rmsprop_eps"]
    config = make_config(task="reverse_gvf", **options)
    first = Learner(config, SPEC).state_dict()
    state = assert_ranks_equal_one(config, 2, interval + 2)
    assert state["optimiser_updates"] == interval + 2
    assert any(not torch.equal(state[name], value) for name, value in first.items() if "question.torso" in name)


@pytest.mark.parametrize(
    "options",
    [
        {"lstm_size": 4},
        {"stop_main_gradient": True},
        {"question_input": "future"},
        {"meta_gradient": "first_order"},
        {"meta_cosine": True},
        {"meta_memory_gb": 0.0},
        {"normalise_cumulants": True},
        {"normalise_cumulants": True, "meta_memory_gb": 0.0},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_of_the_meta_gradient(make_config, options):
    assert_ranks_equal_one(make_config(task="reverse_gvf", meta_interval=2, **SMALL, **options), 2, updates=5)


def test_a_window_is_saved_whole_and_resumed_by_ranks(make_config):
    """Saved after three updates in a window of five, and continued by two ranks, by three and by one."""
    config = make_config(task="reverse_gvf", meta_interval=5, **SMALL)
    _, expected = train(config, ONE_RANK, 8)
    two = [learner for learner, _ in on_ranks(2, lambda rank: train(config, rank, 3))]
    saved = on_ranks(2, lambda rank: rebound(two[rank.rank], rank).state_dict())[0]
    assert saved["meta.window.batch.action"].shape == (3, TIME, BATCH)

    def resumed(rank):
        learner = build(config, rank)
        learner.load_state_dict(saved)
        return [learner.step(part_of(batch, rank))["losses/total"] for batch in list(batches(8))[3:]]

    for found in (on_ranks(2, resumed)[0], on_ranks(3, resumed)[0], resumed(ONE_RANK)):
        assert found == pytest.approx([line["losses/total"] for line in expected[3:]], rel=PRECISION)


def test_normalised_cumulants_are_differentiated_over_all_ranks():
    torch.manual_seed(0)
    z, weight = torch.randn(6, 3), torch.randn(6, 3)
    whole = z.clone().requires_grad_()
    (normalised(whole) * weight).sum().backward()

    def on_part(rank):
        part = z.tensor_split(2)[rank.rank].clone().requires_grad_()
        (normalised(part, rank) * weight.tensor_split(2)[rank.rank]).sum().backward()
        return part.grad

    assert torch.allclose(torch.cat(on_ranks(2, on_part)), whole.grad, rtol=PRECISION, atol=1e-14)


def test_every_rank_refuses_a_loss_that_is_not_finite_on_one(make_config):
    def poisoned(rank):
        learner = build(make_config(**SMALL), rank)
        batch = part_of(next(batches(1)), rank)
        if rank.rank == 1:
            batch.logits[0, 0, 0] = torch.nan
        with pytest.raises(NonFiniteError, match="the policy loss is nan"):
            learner.step(batch)

    on_ranks(2, poisoned)
