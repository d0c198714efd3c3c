"""Training in processes that a test may kill."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import torch

import launch
from learners.learner import Learner

ROOT = Path(launch.__file__).parent
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests")
TINY = ["--game", "catch", "--torso", "shallow", "--pool", "serial", "--frames", "400", "--batch-size", "4", "--unroll", "5"]
"""Flags of a run of a second."""

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["training.loop", "tests.helpers.running"])
"""Processes that start in no time, for what they import is there already, and that inherit no threads."""


def train_here(config):
    """To be the whole life of a process."""
    from training.loop import train

    torch.set_num_threads(1)
    train(config, threading.Event())


def start_training(config):
    process = PROCESSES.Process(target=train_here, args=(config,))
    process.start()
    return process


def start_command(*arguments, **options):
    command = [sys.executable, str(ROOT / "launch.py"), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options)


def wait_until(condition, seconds=90.0, process=None):
    """Waits for something to become true, while `process`, if there is one, lives."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def rollout_actors(pid=None):
    """The actors' processes below the process `pid`, or below this one."""
    children = psutil.Process(pid).children(recursive=True)
    return [process for process in children if "RolloutActor" in " ".join(_command(process))]


def is_gone(process):
    """Ended, though nobody may have asked for its exit code yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def interrupted(monkeypatch, *arguments, at=100):
    """Runs a command that trains and is sent Ctrl-C at a frame."""
    step = Learner.step

    def interrupting(self, batch):
        metrics = step(self, batch)
        if self.frame == at:
            os.kill(os.getpid(), signal.SIGINT)
        return metrics

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", interrupting)
        assert launch.main(list(map(str, arguments))) == 128 + signal.SIGINT
