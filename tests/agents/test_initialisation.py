"""Initialisation: the same for a seed whatever the number of threads, and skipped where weights are loaded."""

import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

from actors.rollout import RolloutWorker
from agents.agent import Agent
from agents.initialisation import RELU_GAIN, orthogonal, skip_initialisation
from agents.threads import allowed_threads, one_thread
from configs.commands import EvaluateConfig
from envs.stream import EnvSpec
from learners.learner import Learner
from tests.helpers.running import ROOT
from training.evaluation import evaluate_run
from training.loop import train

SPEC = EnvSpec(num_actions=3, frame_shape=(1, 84, 84), stack=4, frames_per_step=4)


def test_weights_equal_torchs_orthogonal_initialisation_on_one_thread():
    layer = nn.Linear(300, 200)
    torch.set_num_threads(2)
    torch.manual_seed(3)
    orthogonal(layer, RELU_GAIN)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    torch.manual_seed(3)
    expected = nn.init.orthogonal_(torch.empty(200, 300), RELU_GAIN)
    assert torch.equal(layer.weight, expected)
    assert not layer.bias.any()


def test_the_factorisation_runs_on_one_thread(monkeypatch):
    seen = []
    monkeypatch.setattr(nn.init, "orthogonal_", lambda *_: seen.append(torch.get_num_threads()))
    torch.set_num_threads(2)
    orthogonal(nn.Linear(3, 2), 1.0)
    assert seen == [1]


def test_skipped_initialisation_draws_no_random_numbers(monkeypatch):
    monkeypatch.setattr(nn.init, "orthogonal_", lambda *_: pytest.fail("weights were drawn"))
    before = torch.get_rng_state()
    with skip_initialisation():
        agent = Agent(SPEC, "shallow", lstm_size=8)
        buffer = torch.empty(1000).uniform_(2, 3)
    assert buffer.min() >= 2  # Only parameters are skipped.
    torch.set_rng_state(before)
    torch.empty(1000).uniform_(2, 3)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    with skip_initialisation():
        Agent(SPEC, "shallow")
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(after, before)
    agent.load_state_dict({name: torch.ones_like(value) for name, value in agent.state_dict().items()})
    monkeypatch.undo()
    Agent(SPEC, "shallow")
    assert not torch.equal(torch.get_rng_state(), before)


def test_evaluation_resume_and_actors_skip_initialisation(make_config, never, monkeypatch):
    config = make_config(frames=200, task="reverse_gvf")
    train(config, never)
    monkeypatch.setattr(nn.init, "orthogonal_", lambda *_: pytest.fail("weights were drawn"))
    train(config.with_run(resume=True, frames=400), threading.Event())
    evaluate_run(EvaluateConfig(run_dir=str(config.run_path), episodes=2), threading.Event())
    worker = RolloutWorker(config, num_envs=2, seed=0)
    with pytest.raises(RuntimeError, match="weights"):
        worker.rollout()
    with pytest.raises(pytest.fail.Exception):
        Learner(config, worker.spec)


@pytest.mark.parametrize(("limit", "wanted", "allowed"), [(None, 4, 4), ("2", 4, 2), ("8", 4, 4), ("0", 4, 1), ("many", 4, 4)])
def test_threads_are_limited_by_omp_thread_limit(monkeypatch, limit, wanted, allowed):
    monkeypatch.delenv("OMP_THREAD_LIMIT", raising=False)
    if limit is not None:
        monkeypatch.setenv("OMP_THREAD_LIMIT", limit)
    assert allowed_threads(wanted) == allowed


def test_one_thread_restores_no_more_threads_than_are_allowed(monkeypatch):
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 1


def test_a_network_can_be_built_under_a_limit_of_one_thread():
    """MKL's QR decomposition would wait for ever for a second thread."""
    build = "from agents.torsos import Torso; Torso('nature', (4, 84, 84))"
    done = subprocess.run([sys.executable, "-c", build], env={"OMP_THREAD_LIMIT": "1"}, cwd=ROOT, timeout=120)
    assert done.returncode == 0
