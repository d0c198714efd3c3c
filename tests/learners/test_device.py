"""Everything that a learner does runs on a device that refuses to mix with the CPU, so that no transfer is forgotten."""

import numpy as np
import pytest
import torch

from agents.ranks import ONE_RANK
from agents.tasks import TASKS
from envs.stream import EnvSpec
from learners.learner import Learner
from tests.agents.test_agent import random_batch
from tests.helpers.pretend_device import DEVICE, DeviceMixError, PretendTensor
from training.loop import train
from training.storage.run_directory import RunDirectory

SPEC = EnvSpec(num_actions=3, frame_shape=(1, 20, 20), stack=4, frames_per_step=4)
BATCH, TIME = 4, 5
SMALL = {"batch_size": BATCH, "unroll": TIME, "num_questions": 3, "meta_interval": 2, "frames": 10_000}
UPDATES = 4
"""A whole window, its update of the questions, and a window that is resumed in its middle or after its end."""
VARIANTS = [
    *({"task": task} for task in TASKS),
    {"torso": "deep", "lstm_size": 4},
    {"task": "reward_prediction", "reward_prediction_target": "value"},
    {"task": "reverse_gvf", "meta_period": 3, "lstm_size": 4, "stop_main_gradient": True, "question_input": "future"},
    {"task": "reverse_gvf", "normalise_cumulants": True, "meta_cosine": True, "meta_gradient": "first_order"},
    {"task": "gvf", "meta_memory_gb": 0.0, "meta_optimiser": "rmsprop", "scale_cumulants": False},
]


def batches(count, lstm_size=0):
    for seed in range(count):
        valid = torch.ones(TIME, BATCH, dtype=torch.bool)
        valid[seed % TIME, 0] = valid[2, 1] = False
        yield random_batch(SPEC, TIME, BATCH, lstm_size, seed, valid)


def learner_on(device, config, monkeypatch):
    monkeypatch.setattr("learners.learner.choose_device", lambda name: device)
    return Learner(config, SPEC, ONE_RANK)


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: "-".join(map(str, options.values())))
def test_a_learner_on_a_device_learns_as_on_the_cpu(make_config, monkeypatch, options):
    """Updates, metrics, published weights, checkpoint and resumption within a window."""
    config = make_config(**SMALL | options)
    expected, found = (learner_on(device, config, monkeypatch) for device in (torch.device("cpu"), DEVICE))
    *before, last = batches(UPDATES + 1, config.agent.lstm_size)
    for batch in before:
        metrics = [learner.step(batch) for learner in (expected, found)]
        for line in metrics:
            line.pop("meta/seconds", None)
        assert metrics[1] == pytest.approx(metrics[0], rel=1e-5, abs=1e-8, nan_ok=True)
    assert all(isinstance(parameter, PretendTensor) for parameter in found.agent.parameters())
    resumed = learner_on(DEVICE, config, monkeypatch)
    resumed.load_state_dict(on_cpu(found))
    for learner in (expected, found, resumed):
        learner.step(last)
    assert found.checksum() == resumed.checksum()
    assert type(found.weights()) is torch.Tensor
    states = on_cpu(expected), on_cpu(found)
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        assert torch.allclose(states[1][name], value, rtol=1e-4, atol=1e-6), name


def on_cpu(learner):
    return {name: value.cpu() for name, value in learner.state_dict().items()}


@pytest.mark.parametrize("task", ["pixel_control", "random_reverse_gvf"])
def test_pictures_of_a_learner_on_a_device(make_config, monkeypatch, task):
    config = make_config(**SMALL | {"task": task})
    drawn = []
    for device in (torch.device("cpu"), DEVICE):
        learner = learner_on(device, config, monkeypatch)
        learner.step(next(batches(1)))
        drawn.append(learner.pictures())
    assert drawn[0]
    assert drawn[0].keys() == drawn[1].keys()
    assert all(np.array_equal(drawn[0][name], drawn[1][name]) for name in drawn[0])


def test_a_run_on_a_device_is_saved_resumed_and_evaluated(make_config, tmp_path, never, monkeypatch):
    """The same final games and the same last checkpoint as on the CPU."""
    monkeypatch.setattr(Learner, "pictures", lambda learner: {})
    runs = []
    for device in (torch.device("cpu"), DEVICE):
        for module in ("learners.learner", "training.loop", "training.costs"):
            monkeypatch.setattr(f"{module}.choose_device", lambda name, device=device: device)
        config = {"task": "reverse_gvf", "meta_interval": 2, "num_questions": 3, "eval_episodes": 2}
        whole = make_config(**config, frames=100, run_dir=str(tmp_path / device.type))
        train(whole.with_run(frames=60), never)
        result = train(whole.with_run(resume=True), never)
        runs.append((result["evaluation"], RunDirectory(whole.run_path).checkpoints(3).newest()))
    assert runs[0][0] == runs[1][0]
    for name, value in runs[0][1].tensors.items():
        assert torch.allclose(runs[1][1].tensors[name], value, rtol=1e-4, atol=1e-6), name


def mixes():
    device, cpu = torch.ones(2, 3, device=DEVICE), torch.ones(2, 3)
    return {
        "reads the CPU": lambda: device + cpu,
        "writes to the CPU": lambda: cpu.add_(device),
        "index": lambda: device[torch.tensor([0, 1])],
        "joins": lambda: torch.stack([device.sum(), cpu.sum()]),
        "product": lambda: cpu @ device.T,
        "numpy": device.numpy,
    }


@pytest.mark.parametrize("name", mixes())
def test_the_device_refuses_to_mix(name):
    with pytest.raises(RuntimeError) as error:
        mixes()[name]()
    assert isinstance(error.value, DeviceMixError) or name == "numpy"


def test_a_batch_that_stays_on_the_cpu_is_refused(make_config, monkeypatch):
    monkeypatch.setattr("agents.batch.Batch.to", lambda batch, device: batch)
    learner = learner_on(DEVICE, make_config(**SMALL), monkeypatch)
    with pytest.raises(DeviceMixError):
        learner.step(next(batches(1)))
