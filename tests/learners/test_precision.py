"""Training with the torso in bfloat16."""

import pytest
import torch

from agents.tasks import TASKS
from configs.errors import ConfigError
from learners.learner import Learner
from tests.helpers.pretend_device import DEVICE
from tests.learners.test_device import SMALL, SPEC, batches
from training.loop import train

META_LEARNED = [name for name, task in TASKS.items() if task.learns_questions]
PLAIN = [task for task in TASKS if task not in META_LEARNED]


def learner_with(precision, make_config, **options):
    return Learner(make_config(**SMALL | options, precision=precision), SPEC)


@pytest.mark.parametrize(("task", "torso"), [("none", "deep"), *((task, "shallow") for task in PLAIN)])
def test_updates_are_those_of_float32_up_to_rounding(make_config, task, torso):
    options = {"task": task, "torso": torso, "lstm_size": 4 if task == "none" else 0}
    learners = [learner_with(precision, make_config, **options) for precision in ("float32", "bf16")]
    before = learners[0].weights()
    for batch in batches(2, options["lstm_size"]):
        metrics = [learner.step(batch) for learner in learners]
    moved = [learner.weights() - before for learner in learners]
    assert not torch.equal(*moved)
    assert torch.cosine_similarity(*moved, dim=0) > 0.98
    assert metrics[1]["losses/total"] == pytest.approx(metrics[0]["losses/total"], rel=0.05)


def test_only_the_torso_computes_in_bfloat16(make_config):
    """Weights, moments and with them checkpoints, and all that the losses are made from, are float32."""
    learner = learner_with("bf16", make_config, task="reward_prediction")
    seen = {}
    for name, module in learner.agent.named_modules():
        module.register_forward_hook(lambda _, inputs, output, name=name: seen.update({name: output.dtype}))
    learner.step(next(batches(1)))
    expected = {name: torch.bfloat16 if name.startswith("torso") else torch.float32 for name in seen}
    assert seen == expected
    assert {"torso.convs.0", "torso.linear", "policy", "value"} <= seen.keys()
    assert {value.dtype for value in learner.state_dict().values() if value.is_floating_point()} == {torch.float32}
    assert learner.weights().dtype == torch.float32


def test_bfloat16_on_a_device(make_config, monkeypatch):
    expected = learner_with("bf16", make_config)
    monkeypatch.setattr("learners.learner.choose_device", lambda name: DEVICE)
    found = learner_with("bf16", make_config)
    for batch in batches(2):
        expected.step(batch), found.step(batch)
    assert torch.allclose(found.weights(), expected.weights(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("task", META_LEARNED)
def test_a_meta_gradient_in_bfloat16_is_refused(make_config, never, task):
    config = make_config(task=task, precision="bf16")
    with pytest.raises(ConfigError, match=f"too coarse for the meta-gradient of --task {task}; use --precision float32"):
        train(config, never)
    assert not config.run_path.exists()
    with pytest.raises(ConfigError, match="meta-gradient"):
        Learner(config, SPEC)


def test_a_run_keeps_its_precision(make_config, never):
    train(make_config(frames=40, precision="bf16"), never)
    with pytest.raises(ConfigError, match="--precision bf16; it cannot resume with float32"):
        make_config(frames=80).check_resumes(make_config(frames=40, precision="bf16"))
    assert train(make_config(frames=80, precision="bf16", resume=True), never)["frames"] == 80
