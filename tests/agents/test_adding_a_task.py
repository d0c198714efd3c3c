"""The task of docs/adding_a_task.md, run from the code on the page."""

import inspect
import json
import os
import re
import subprocess
import sys

import pytest

from agents.tasks import AuxiliaryTask
from tests.helpers.running import ROOT
from training.loop import train

PAGE = (ROOT / "docs" / "adding_a_task.md").read_text()
TASK_FILE, TORSO_FILE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = re.findall(r"^python (launch\.py (?:train|compare|evaluate) .*)$", PAGE, flags=re.MULTILINE)
TASK = "my_tasks:InverseDynamics"
TINY = [
    "--frames",
    "200",
    "--torso",
    "shallow",
    "--unroll",
    "5",
    "--batch-size",
    "4",
    "--eval-episodes",
    "1",
    "--log-frames",
    "100",
]


@pytest.fixture
def outside(tmp_path):
    """A directory outside of Hindcast with the modules of the page."""
    (tmp_path / "my_tasks.py").write_text(TASK_FILE)
    (tmp_path / "my_torsos.py").write_text(TORSO_FILE)
    return tmp_path


@pytest.mark.slow
def test_the_documented_task_learns(make_config, never, outside, monkeypatch):
    monkeypatch.syspath_prepend(str(outside))
    config = make_config(
        task=TASK, frames=60_000, batch_size=16, unroll=7, learning_rate=3e-3, entropy_cost=0.1, log_frames=3000
    )
    train(config, never)
    lines = [json.loads(line) for line in (config.run_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["auxiliary/accuracy"] < 0.6
    assert lines[-1]["auxiliary/accuracy"] > 0.75  # Chance level: 1/3. At the walls two actions have the same effect.
    assert lines[-1]["losses/auxiliary"] < 0.5 * lines[0]["losses/auxiliary"]


def run(outside, *arguments):
    environment = os.environ | {"PYTHONPATH": str(outside)}
    command = [sys.executable, str(ROOT / "launch.py"), *arguments]
    done = subprocess.run(command, cwd=outside, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_documented_commands_work(outside):
    explain, train_it, sweep, train_torso, evaluate_torso = (command.split()[1:] for command in COMMANDS)
    assert "Weight of the loss, which is a cross-entropy" in run(outside, *explain).stdout
    run(outside, *train_it, *TINY, "--pool", "serial")
    record = json.loads((outside / f"runs/catch-{TASK}-seed1/config.json").read_text())
    assert record["config"]["auxiliary"] == {"inverse_dynamics_weight": 0.3}
    run(outside, *train_torso, *(word for word in TINY if word not in ("--torso", "shallow")), "--pool", "serial")
    run(outside, *evaluate_torso, "--episodes", "1")
    run(outside, *sweep, *TINY, "--seeds", "2")
    lines = (outside / f"runs/catch/catch-{TASK}-seed2/metrics.jsonl").read_text().splitlines()
    assert "auxiliary/accuracy" in json.loads(lines[-1])
    done = run(outside, "report", "runs/catch")
    assert done.stderr == ""
    assert "Against none, final score:" in done.stdout
    numbers = json.loads((outside / "runs/catch/report.json").read_text())
    assert numbers["task"] == TASK
    assert [(cell["agent"], cell["finished"]) for cell in numbers["scores"]] == [("none", 2), (TASK, 2)]


def test_the_documented_task_is_that_of_the_examples():
    assert (ROOT / "examples/hindcast_tasks/hindcast_tasks/inverse_dynamics.py").read_text() == TASK_FILE


def test_the_documented_signatures_are_those_of_the_base_class():
    for call in ("predict", "loss", "ask", "pictures", "attach", "after_update"):
        (documented,) = set(re.findall(rf"`{call}\((.*?)\)`", PAGE))
        _, *names = inspect.signature(getattr(AuxiliaryTask, call)).parameters
        assert documented.split(", ") == names
