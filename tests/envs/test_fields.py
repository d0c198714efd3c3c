"""One list of fields: what is declared there is carried from the stream to batches and checkpoints."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import torch

from agents.batch import Batch
from envs.fields import COMPUTED, FIELDS
from envs.stream import EnvSpec, StreamStep
from tests.helpers.running import PACKAGES, ROOT

ANCHOR = "    reward: Annotated[Array, Field("
LINE = "    life_lost: Annotated[Array, Field(np.bool_, compute=lambda step: step.life_lost)]\n"
PROGRAM = """
import json, sys, threading
from configs.train import *
from configs.tasks import DiscoveryConfig
from actors.serial_pool import SerialPool
from learners.learner import Learner
from training.loop import train
from training.storage.run_directory import RunDirectory

config = TrainConfig(task="reverse_gvf", env=EnvConfig(game="catch"), agent=AgentConfig(torso="shallow"),
    learner=LearnerConfig(unroll=5, batch_size=4), auxiliary=DiscoveryConfig(num_questions=4, meta_interval=4),
    actors=ActorConfig(pool="serial"), run=RunConfig(frames=100, run_dir=sys.argv[1], eval_episodes=0))
pool = SerialPool(config)
learner = Learner(config, pool.spec)
pool.publish(learner.weights(), 0)
batch = pool.next_batch()
train(config, threading.Event())
saved = RunDirectory(config.run_path).checkpoints(1).newest().tensors
print(json.dumps([list(batch.life_lost.shape), str(batch.life_lost.dtype),
    {name: list(value.shape) for name, value in saved.items() if "life_lost" in name}]))
"""


def test_a_field_added_in_one_place_reaches_batches_and_checkpoints(tmp_path):
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "envs/fields.py"
    text = path.read_text()
    assert text.count(ANCHOR) == 1
    path.write_text(text.replace(ANCHOR, LINE + ANCHOR))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run")],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shape, dtype, saved = json.loads(done.stdout)
    assert (shape, dtype) == ([5, 4], "torch.bool")
    assert saved == {"learner.meta.window.batch.life_lost": [1, 5, 4]}  # The fifth update opened a new window.


def test_layout_of_every_kind_of_field():
    spec = EnvSpec(num_actions=3, frame_shape=(1, 7, 8), stack=2, frames_per_step=4)
    shapes = {name: field.allocate(spec, 5, 4).shape for name, field in FIELDS.items() if field.time != "start"}
    assert shapes == {
        "frames": (5, 4, 1, 7, 8),
        "first": (6, 4),
        "action": (5, 4),
        "reward": (5, 4),
        "discount": (5, 4),
        "valid": (5, 4),
        "logits": (5, 4, 3),
    }
    assert {name for name, field in FIELDS.items() if field.env_axis == 0} == {"stack", "core_state"}
    assert set(COMPUTED) == {"frames", "first", "reward", "discount", "valid"}


def test_a_batch_moves_whole_to_a_device():
    arrays = {name: torch.zeros(2) for name in FIELDS}
    moved = Batch(**arrays, version=torch.zeros(2)).to(torch.device("meta"))
    assert all(getattr(moved, name).is_meta for name in (*FIELDS, "version"))


def test_a_stream_step_has_only_the_fields_that_there_are():
    step = StreamStep({"reward": np.ones(2)}, np.zeros(2, bool), [], [])
    assert step.reward.tolist() == [1, 1]
    assert not hasattr(step, "rewards")
