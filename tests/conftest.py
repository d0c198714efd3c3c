import shutil
import signal
import sys
import threading
import uuid
from pathlib import Path

import pytest
import torch

from actors.resources import available_cores
from configs.tasks import BUILT_IN_TASKS, task_type
from configs.train import ActorConfig, AgentConfig, EnvConfig, LearnerConfig, RunConfig, TrainConfig


def pytest_xdist_auto_num_workers(config):
    """Two more than there are cores: tests wait for processes, and meanwhile others can compute."""
    return min(6, available_cores() + 2)


@pytest.fixture
def make_config(tmp_path):
    """Builds a small serial config; keyword arguments override fields wherever they belong, except settings of other tasks."""

    def make(**overrides):
        values = {
            "game": "catch", "torso": "shallow", "batch_size": 4, "unroll": 5, "pool": "serial", "learners": 1,
            "frames": 200, "run_dir": str(tmp_path / "run"), "log_frames": 20, "eval_episodes": 0,
        } | overrides  # fmt: skip
        groups = {
            "env": EnvConfig,
            "agent": AgentConfig,
            "learner": LearnerConfig,
            "auxiliary": task_type(values.get("task", "none")).config,
            "actors": ActorConfig,
            "run": RunConfig,
        }
        parts = {
            name: kind(**{key: values.pop(key) for key in list(values) if key in kind.__dataclass_fields__})
            for name, kind in groups.items()
        }
        of_other_tasks = {name for kind in BUILT_IN_TASKS.values() for name in values if kind.has(name)}
        return TrainConfig(**parts, **{name: value for name, value in values.items() if name not in of_other_tasks})

    return make


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors are slower on many threads, most of all beside other work."""
    torch.set_num_threads(1)


@pytest.fixture
def plugged(tmp_path, monkeypatch):
    """Name of a module with tasks and torsos from outside: a copy that nothing has imported (tests/helpers/plugged.py)."""
    name = f"plugged_{uuid.uuid4().hex}"
    directory = tmp_path / "outside"
    directory.mkdir()
    shutil.copy(Path(__file__).parent / "helpers" / "plugged.py", directory / f"{name}.py")
    monkeypatch.syspath_prepend(str(directory))
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def never():
    return threading.Event()


@pytest.fixture
def signals():
    """The command line takes over the signals of its process; a test gives them back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
