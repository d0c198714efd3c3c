"""TD3's policy: trained once, kept without code in it."""

import threading

import gymnasium
import numpy as np
import pytest
import torch

import launch
from configs.errors import StopRequested
from studies.reproduce.reacher import normal_importance_ratio
from studies.reproduce.reacher_policy import ReacherPolicy, evaluate_policy, reacher_policy
from training.storage.checkpoint import Checkpoint, read_checkpoint


@pytest.fixture
def policy():
    generator = torch.Generator().manual_seed(0)
    sizes = [(32, 10), (16, 32), (2, 16)]
    tensors = {}
    for i, shape in enumerate(sizes):
        tensors[f"{i}.weight"] = 0.3 * torch.randn(shape, generator=generator)
        tensors[f"{i}.bias"] = 0.1 * torch.randn(shape[0], generator=generator)
    return ReacherPolicy(Checkpoint(tensors, {}))


def test_the_policy_is_trained_once_and_then_read(tmp_path, never):
    path = tmp_path / "policy.safetensors"
    trained = reacher_policy(path, 1010, 0, never)
    assert trained.values["steps"] == 1010
    assert trained.values["return_mean"] < 0
    kept = path.stat().st_mtime_ns
    again = reacher_policy(path, 1010, 0, never)
    assert path.stat().st_mtime_ns == kept
    state = np.random.default_rng(0).normal(size=(3, 10))
    assert np.array_equal(trained(state), again(state))
    assert (np.abs(again(state)) <= 1).all()
    assert read_checkpoint(path).values["kind"] == "reacher policy"


def test_a_damaged_file_is_replaced_with_a_warning(tmp_path, never, caplog):
    path = tmp_path / "policy.safetensors"
    path.write_bytes(b"not a policy")
    assert reacher_policy(path, 110, 0, never).values["steps"] == 110
    assert "training a new policy" in caplog.text


def test_a_policy_of_other_settings_is_not_used(tmp_path, never, caplog):
    path = tmp_path / "policy.safetensors"
    reacher_policy(path, 20, 0, never)
    assert reacher_policy(path, 30, 0, never).values["steps"] == 30
    assert "no policy of 30 steps" in caplog.text


def test_training_stops_on_request(tmp_path):
    stop = threading.Event()
    stop.set()
    with pytest.raises(StopRequested):
        reacher_policy(tmp_path / "policy.safetensors", 10_000, 0, stop)
    assert not (tmp_path / "policy.safetensors").exists()


def test_evaluation_returns_are_those_of_fifty_steps(policy):
    env = gymnasium.make("Reacher-v5")
    state, _ = env.reset(seed=4)
    total = 0.0
    for _ in range(50):
        state, reward, *_ = env.step(policy(state))
        total += reward
    assert evaluate_policy(policy, seed=4)[0] == pytest.approx(total)


def test_the_importance_ratio_is_that_of_two_normal_densities():
    noise = np.random.default_rng(0).normal(size=(7, 2))
    log_density = {std: torch.distributions.Normal(0.0, std).log_prob(torch.from_numpy(noise)).sum(-1) for std in (0.1, 0.5)}
    assert np.allclose(normal_importance_ratio(noise, 0.1, 0.5), (log_density[0.1] - log_density[0.5]).exp().numpy())


@pytest.mark.parametrize("study", ["reacher", "off_policy"])
def test_without_the_extra_the_command_says_what_to_install(tmp_path, monkeypatch, capsys, signals, study):
    monkeypatch.setattr("studies.reproduce.experiment.find_spec", lambda name: None)
    assert launch.main(["reproduce", study, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error == f"launch.py: reproduce {study} needs stable_baselines3 and mujoco: pip install 'hindcast[reacher]'\n"
    assert not (tmp_path / "out").exists()
