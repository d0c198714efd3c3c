"""How the learner learns questions: who moves whom, when, and that nothing of it is lost in a checkpoint."""

import math

import pytest
import torch

from learners.learner import Learner, NonFiniteError
from tests.agents.test_agent import SPEC, random_batch
from tests.agents.test_tasks import TASK_NAMES

LEARNT = ["gvf", "reverse_gvf"]


@pytest.fixture
def make_learner(make_config):
    def make(task="reverse_gvf", **overrides):
        overrides = {"num_questions": 3, "meta_interval": 3, "batch_size": 2, "unroll": 6, "frames": 4800} | overrides
        return Learner(make_config(task=task, **overrides), SPEC)

    return make


def theta(learner):
    return [value.clone() for name, value in learner.state_dict().items() if name.startswith("parameter.")]


def phi(learner):
    return [p.detach().clone() for p in learner.task.questions.parameters()]


def equal(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("task", LEARNT)
def test_the_answers_do_not_move_the_questions_nor_the_judgement_the_agent(make_learner, task):
    """Until the window closes a learner of questions does, bit for bit, what one with frozen questions does."""
    learning, frozen = make_learner(task), make_learner(f"random_{task}")
    learning.step(random_batch(seed=0))
    frozen.step(random_batch(seed=0))
    asked = phi(learning)
    for update in range(1, 3):
        metrics = learning.step(random_batch(seed=update))
        frozen.step(random_batch(seed=update))
        assert "meta/loss" not in metrics
        assert equal(theta(learning), theta(frozen))
        assert equal(phi(learning), asked)
    metrics = learning.step(random_batch(seed=3))  # The outer batch of the third update.
    frozen.step(random_batch(seed=3))
    assert metrics["meta/gradient_norm"] > 0
    assert metrics["meta/update_norm"] > 0
    assert not equal(phi(learning), asked)
    assert equal(phi(frozen), asked)
    assert not equal(theta(learning), theta(frozen))  # It has begun to answer the new questions.


def test_frozen_questions_never_move(make_learner):
    learner = make_learner("random_gvf")
    learner.step(random_batch(seed=0))
    asked = phi(learner)
    for update in range(10):
        learner.step(random_batch(seed=update))
    assert equal(phi(learner), asked)


@pytest.mark.parametrize("memory", [4.0, 0.0])
def test_a_longer_period_looks_through_its_last_updates_alone(make_learner, memory):
    """From where the window begins, M = 5 with K = 2 does what M = K = 2 does from there, bit for bit."""
    seldom = make_learner(meta_interval=2, meta_period=5, meta_memory_gb=memory)
    often, frozen = make_learner(meta_interval=2), make_learner("random_reverse_gvf")
    for update in range(3):
        assert "meta/loss" not in seldom.step(random_batch(seed=update))
        assert not seldom._meta._window.steps
        frozen.step(random_batch(seed=update))
    assert equal(theta(seldom), theta(frozen))
    often.load_state_dict({name: value for name, value in seldom.state_dict().items() if name != "meta.position"})
    for update in range(3, 6):
        ours, theirs = seldom.step(random_batch(seed=update)), often.step(random_batch(seed=update))
        assert all(ours[name] == theirs[name] for name in ours if name != "meta/seconds")
        assert ("meta/loss" in ours) == (update == 5)
    assert equal(phi(seldom), phi(often))
    assert not equal(phi(seldom), phi(frozen))
    moved = ["meta/loss" in seldom.step(random_batch(seed=update)) for update in range(6, 17)]
    assert [update for update, did in enumerate(moved, start=6) if did] == [10, 15]


def test_a_place_in_the_period_that_does_not_fit_the_window_is_refused(make_learner):
    learner = make_learner(meta_interval=2, meta_period=5)
    for update in range(4):
        learner.step(random_batch(seed=update))
    for position in (-1, 3, 5, 6):
        state = learner.state_dict() | {"meta.position": torch.tensor(position)}
        with pytest.raises(ValueError, match="cannot be in the window"):
            make_learner(meta_interval=2, meta_period=5).load_state_dict(state)


@pytest.mark.parametrize(
    ("updates", "period", "optimiser"),
    [
        *((updates, 3, "rmsprop") for updates in (1, 2, 3, 4, 6)),
        *((updates, 5, "rmsprop") for updates in (1, 2, 3, 4, 5, 6, 9)),
        *((updates, 5, "adam") for updates in (2, 4, 6)),
    ],
)
def test_a_state_from_the_middle_of_a_period_continues_exactly(make_learner, updates, period, optimiser):
    learner, copy = (make_learner(seed=seed, meta_period=period, optimiser=optimiser) for seed in (1, 2))
    for update in range(updates):
        learner.step(random_batch(seed=update))
    copy.load_state_dict({name: value.clone() for name, value in learner.state_dict().items()})
    for update in range(updates, updates + 7):
        ours, theirs = (each.step(random_batch(seed=update)) for each in (learner, copy))
        assert {k: v for k, v in ours.items() if k != "meta/seconds"} == {
            k: v for k, v in theirs.items() if k != "meta/seconds"
        }
    assert equal(theta(learner), theta(copy))
    assert equal(phi(learner), phi(copy))


def test_a_number_of_updates_that_adam_cannot_have_made_is_refused(make_learner):
    learner = make_learner(optimiser="adam")
    for update in range(5):
        learner.step(random_batch(seed=update))
    state = learner.state_dict()
    assert (state["optimiser_updates"], state["meta.window.optimiser_updates"]) == (5, 3)
    for name, found in {"optimiser_updates": -1, "meta.window.optimiser_updates": 5}.items():
        with pytest.raises(ValueError, match=f"'optimiser_updates' cannot be {found} after"):
            make_learner(optimiser="adam").load_state_dict(state | {name: torch.tensor(found)})
    with pytest.raises(ValueError, match=r"'first_moment.agent.* is only in the checkpoint"):
        make_learner().load_state_dict(state)


@pytest.mark.parametrize(("task", "fresh"), [("reverse_gvf", "10010010"), ("none", "11111111")])
def test_the_window_is_fresh_before_its_second_update(make_learner, task, fresh):
    learner, found = make_learner(task), ""
    for seed in range(8):
        learner.step(random_batch(seed=seed))
        found += str(int(learner.window_is_fresh))
    assert found == fresh


def test_without_memory_for_graphs_the_result_is_the_same(make_learner):
    keeping, recomputing = make_learner(), make_learner(meta_memory_gb=0.0)
    for update in range(8):
        keeping.step(random_batch(seed=update))
        recomputing.step(random_batch(seed=update))
    assert equal(phi(keeping), phi(recomputing))
    assert equal(theta(keeping), theta(recomputing))


@pytest.mark.parametrize("optimiser", ["rmsprop", "sgd"])
def test_other_optimisers_move_the_questions_and_are_restored(make_learner, optimiser):
    learner, copy = (make_learner(meta_optimiser=optimiser, meta_learning_rate=1e-4) for _ in range(2))
    for update in range(5):
        learner.step(random_batch(seed=update))
    copy.load_state_dict(learner.state_dict())
    before = phi(learner)
    for update in range(5, 9):
        learner.step(random_batch(seed=update))
        copy.step(random_batch(seed=update))
    assert not equal(phi(learner), before)
    assert equal(phi(learner), phi(copy))


def test_a_long_meta_gradient_is_clipped_and_a_short_one_is_not(make_learner):
    def after(clip):
        learner = make_learner(meta_optimiser="sgd", meta_learning_rate=0.5, meta_clip_norm=clip)
        return [learner.step(random_batch(seed=update)) for update in range(4)][-1], phi(learner)

    free, moved = after(0.0)
    norm = free["meta/gradient_norm"]
    assert free["meta/update_norm"] == pytest.approx(0.5 * norm)
    clipped, moved_less = after(norm / 8)
    assert clipped["meta/gradient_norm"] == norm
    assert clipped["meta/update_norm"] == pytest.approx(0.5 * norm / 8, rel=1e-4)
    assert not equal(moved, moved_less)
    assert equal(after(2 * norm)[1], moved)


def test_the_cosine_between_both_forms_is_logged_on_request_and_changes_nothing(make_learner):
    plain, curious = make_learner(normalise_cumulants=True), make_learner(normalise_cumulants=True, meta_cosine=True)
    for update in range(4):
        plain.step(random_batch(seed=update))
        metrics = curious.step(random_batch(seed=update))
    assert 0.3 < metrics["meta/cosine"] < 1.0
    assert equal(phi(plain), phi(curious))
    first_order = make_learner(normalise_cumulants=True, meta_gradient="first_order")
    for update in range(4):
        first_order.step(random_batch(seed=update))
    assert not equal(phi(plain), phi(first_order))


def test_main_gradients_stop_at_the_torso(make_learner):
    for task in ("none", "random_reverse_gvf"):
        learner = make_learner(task, stop_main_gradient=True)
        torso = {name: p.detach().clone() for name, p in learner.agent.torso.named_parameters()}
        heads = learner.agent.policy.weight.detach().clone()
        batch = random_batch()
        learner.step(batch)
        moved = [name for name, p in learner.agent.torso.named_parameters() if not torch.equal(p, torso[name])]
        assert not torch.equal(learner.agent.policy.weight, heads)
        assert bool(moved) == (task != "none")
    # What does move it is the task alone: another reward leaves it as it is.
    ours, theirs = (make_learner("random_reverse_gvf", stop_main_gradient=True, clip_norm=1e9) for _ in range(2))
    one, other = random_batch(), random_batch()
    other.reward.neg_()
    ours.step(one)
    theirs.step(other)
    assert equal(ours.agent.torso.parameters(), theirs.agent.torso.parameters())
    assert not equal(ours.agent.policy.parameters(), theirs.agent.policy.parameters())


def test_a_meta_gradient_that_is_not_finite_stops_before_the_questions_move(make_learner, monkeypatch):
    learner = make_learner()
    for update in range(3):
        learner.step(random_batch(seed=update))
    asked = phi(learner)
    meta = learner._meta._window
    monkeypatch.setattr(meta, "backpropagate", lambda *_, **__: [torch.full_like(p, math.nan) for p in meta.phi])
    with pytest.raises(NonFiniteError, match=r"the meta-gradient of the question network.* is not finite"):
        learner.step(random_batch(seed=3))
    assert equal(phi(learner), asked)


@pytest.mark.parametrize("task", TASK_NAMES)
def test_every_task_reports_its_loss_and_shapes_the_torso(make_learner, task):
    learner, plain = make_learner(task), make_learner("none")
    metrics = learner.step(random_batch())
    plain.step(random_batch())
    assert metrics["losses/auxiliary"] > 0
    total = sum(metrics[f"losses/{part}"] for part in ("policy", "value", "entropy", "auxiliary"))
    assert metrics["losses/total"] == pytest.approx(total, rel=1e-4)
    assert not equal(learner.agent.torso.parameters(), plain.agent.torso.parameters())
    assert any(name.startswith("auxiliary/") for name in metrics)


def test_question_metrics(make_learner):
    learner = make_learner()
    metrics = learner.step(random_batch())
    assert metrics["questions/cumulant_mean"] == pytest.approx(0, abs=0.2)
    assert metrics["questions/cumulant_spread"] > 0.2
    assert 0 < metrics["questions/discount_mean"] < 1
    discount, horizon = (learner.histograms[f"questions/{name}"] for name in ("discount", "horizon_frames"))
    assert torch.allclose(horizon, SPEC.frames_per_step / (1 - discount))


@pytest.mark.slow
def test_compiled_networks_learn_the_same(make_learner):
    plain, compiled = make_learner("reward_prediction"), make_learner("reward_prediction", compile=True)
    plain.step(random_batch())
    compiled.step(random_batch())
    assert torch.allclose(plain.weights(), compiled.weights(), atol=1e-5)
    assert plain.state_dict().keys() == compiled.state_dict().keys()
