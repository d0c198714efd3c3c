"""Trained agents and training from Python, as docs/python.md shows them."""

import re
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from actors.evaluator import Player
from configs.errors import CheckpointError, GameError, RunError
from configs.train import ActorConfig
from envs.registry import make_games
from envs.stream import EpisodeStream, episode_seed
from tests.helpers.running import ROOT
from training.evaluation import load_agent
from training.loop import train
from training.policy import load_policy
from training.storage.run_directory import RunDirectory

COUNTER = "gym:tests.helpers.counter:Counter-v0"
GYMNASIUM, OURS, LOOP = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)


def trained(make_config, never, **options):
    config = make_config(**options)
    train(config, never)
    return config


def played(policy, env, seed):
    """Actions of one game."""
    image, _ = env.reset(seed=seed)
    policy.reset()
    actions, over = [], False
    while not over:
        actions.append(policy(image))
        image, _, terminated, truncated, _ = env.step(actions[-1])
        over = terminated or truncated
    return actions


@pytest.mark.parametrize("lstm_size", [0, 8])
def test_a_gymnasium_environment_is_played_as_in_evaluation(make_config, never, lstm_size):
    config = trained(make_config, never, game=COUNTER, lstm_size=lstm_size)
    agent = load_agent(config, RunDirectory(config.run_path).checkpoints(1).newest())
    player = Player(agent, EpisodeStream(make_games(COUNTER, "impala", 1), seed=5), seed=5)
    expected, over = [], False
    while not over:
        action, step = player.step()
        expected.append(int(action[0]))
        over = bool(step.episodes)
    env = gymnasium.make("Counter-v0")
    assert played(load_policy(config.run_path, seed=5, game=COUNTER), env, episode_seed(5, 0, 0)) == expected


def test_a_reset_forgets_the_game_before(make_config, never):
    config = trained(make_config, never, game=COUNTER, lstm_size=8)
    env, (used, fresh) = gymnasium.make("Counter-v0"), (load_policy(config.run_path, greedy=True, game=COUNTER) for _ in "ab")
    played(used, env, seed=1)
    played(used, env, seed=2)
    played(fresh, env, seed=2)
    assert torch.equal(used._state, fresh._state)
    assert np.array_equal(used._stack.array, fresh._stack.array)


def run_documented(code, **changes):
    """The variables of a program of docs/python.md with some of its text changed."""
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    variables = {}
    exec(compile(code, "python.md", "exec"), variables)
    return variables


def test_the_documented_program_plays_a_gymnasium_environment(make_config, never):
    path = trained(make_config, never, game=COUNTER).run_path
    changes = {'"runs/pong"': f'"{path}", game="{COUNTER}"', '"ALE/Pong-v5"': '"Counter-v0"'}
    found = run_documented(GYMNASIUM, **changes)
    steps = found["env"].unwrapped.length
    assert found["score"] == steps * (steps + 1) / 2


def test_the_documented_program_plays_our_games_as_an_evaluation_does(make_config, never):
    config = trained(make_config, never)
    found = run_documented(OURS, **{'"runs/catch"': f'"{config.run_path}"'})["scores"]
    agent = load_agent(config, RunDirectory(config.run_path).checkpoints(1).newest())
    player = Player(agent, EpisodeStream(make_games("catch", "impala", 8), seed=1), seed=1, greedy=True)
    expected = []
    while len(expected) < 100:
        expected += [episode.score for episode in player.step()[1].episodes]
    assert found == expected


def test_the_documented_loop_learns_what_a_serial_run_does(make_config, never):
    variables = run_documented(LOOP, **{"50_000": "2_000"})
    config = replace(variables["config"], actors=ActorConfig(pool="serial"))
    config = config.with_run(run_dir=str(make_config().run_path), eval_episodes=0)
    train(config, never)
    saved = RunDirectory(config.run_path).checkpoints(1).newest().tensors
    learnt = {name: value for name, value in variables["learner"].state_dict().items() if not name.startswith("meta.")}
    assert all(torch.equal(saved[f"learner.{name}"], value) for name, value in learnt.items())
    assert len(LOOP.splitlines()) <= 12  # Imports and a blank line among them.


def test_images_that_the_agent_was_not_trained_on_are_refused(make_config, never):
    policy = load_policy(trained(make_config, never).run_path)
    for image in (np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40)), np.zeros((2, 1, 40, 40), np.uint8)):
        with pytest.raises(ValueError, match=r"the policy sees uint8 images .* with 1 channels, not"):
            policy(image)
    assert policy(np.zeros((80, 60, 1), np.uint8)) in range(3)


def test_a_file_cannot_choose_code_to_import(make_config, never, tmp_path):
    config = trained(make_config, never, game=COUNTER)
    with pytest.raises(GameError, match=r"would run the code of 'tests\.helpers\.counter'"):
        load_policy(config.run_path)
    with pytest.raises(CheckpointError):
        load_policy(config.run_path, checkpoint=7, game=COUNTER)
    with pytest.raises(RunError, match="holds no run"):
        load_policy(tmp_path)


def test_neither_ray_nor_a_task_is_imported(make_config, never):
    config = trained(make_config, never, task="reverse_gvf", meta_interval=2)
    code = f"""
import sys
from training.policy import load_policy
load_policy({str(config.run_path)!r})
print(sorted(name for name in sys.modules if name == "ray" or name.startswith("agents.tasks")))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
