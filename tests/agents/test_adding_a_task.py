"""The task of docs/adding_a_task.md, run from the code on the page."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import agents.tasks
from agents.tasks import AuxiliaryTask
from tests.helpers.running import PACKAGES, ROOT
from training.loop import train

PAGE = (ROOT / "docs" / "adding_a_task.md").read_text()
FILE, REGISTRY, NAME = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.slow
def test_the_documented_task_learns(make_config, never, monkeypatch):
    module = {"__name__": "agents.tasks.inverse_dynamics"}
    exec(compile(FILE, "adding_a_task.md", "exec"), module)
    monkeypatch.setattr("learners.learner.TASKS", agents.tasks.TASKS | {"inverse_dynamics": module["InverseDynamics"]})
    config = make_config(
        task="inverse_dynamics", frames=60_000, batch_size=16, unroll=7, learning_rate=3e-3, entropy_cost=0.1, log_frames=3000
    )
    train(config, never)
    lines = [json.loads(line) for line in (config.run_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["auxiliary/accuracy"] < 0.6
    assert lines[-1]["auxiliary/accuracy"] > 0.75  # Chance level: 1/3. At the walls two actions have the same effect.
    assert lines[-1]["losses/auxiliary"] < 0.5 * lines[0]["losses/auxiliary"]


@pytest.fixture
def copy(tmp_path):
    """A copy of Hindcast with the three changes of the page applied."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "launch.py", tmp_path)
    (tmp_path / "agents/tasks/inverse_dynamics.py").write_text(FILE)
    with (tmp_path / "agents/tasks/__init__.py").open("a") as file:
        file.write(REGISTRY)
    config = tmp_path / "configs/train.py"
    text, count = re.subn(r"^TaskName = Literal\[.*?^\].*?\n", NAME, config.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert count == 1
    config.write_text(text)
    return tmp_path


def launch(copy, *arguments):
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, "launch.py", *arguments], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_the_documented_task_works_in_compare_and_report(copy):
    flags = "--games catch --tasks none inverse_dynamics --seeds 2 --frames 200 --torso shallow --unroll 5 --batch-size 4"
    launch(copy, "compare", *flags.split(), "--eval-episodes", "1", "--log-frames", "100", "--out", "grid")
    lines = (copy / "grid/catch-inverse_dynamics-seed2/metrics.jsonl").read_text().splitlines()
    assert "auxiliary/accuracy" in json.loads(lines[-1])
    done = launch(copy, "report", "grid")
    assert done.stderr == ""
    assert "Against none, final score:" in done.stdout
    numbers = json.loads((copy / "grid/report.json").read_text())
    assert numbers["task"] == "inverse_dynamics"
    assert [(cell["agent"], cell["finished"]) for cell in numbers["scores"]] == [("none", 2), ("inverse_dynamics", 2)]
    assert (copy / "grid/report_curves.png").is_file()


def test_the_documented_signatures_are_those_of_the_base_class():
    for call in ("predict", "loss", "ask", "pictures"):
        (documented,) = set(re.findall(rf"`{call}\((.*?)\)`", PAGE))
        _, *names = inspect.signature(getattr(AuxiliaryTask, call)).parameters
        assert documented.split(", ") == names
