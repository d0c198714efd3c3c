"""The task of docs/adding_a_task.md, built from that very page."""

import json
import re
from pathlib import Path

import agents.tasks
from studies.training import train

PAGE = Path(__file__).parents[2] / "docs" / "adding_a_task.md"


def test_the_documented_task_works_as_documented(make_config, never, monkeypatch):
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    registry = dict(agents.tasks.TASKS)
    monkeypatch.setattr("learners.learner.TASKS", registry)
    module = {"__name__": "agents.tasks.inverse_dynamics", "TASKS": registry}
    for block in code:
        exec(compile(block, PAGE.name, "exec"), module)
    config = make_config(
        task="inverse_dynamics", frames=60_000, batch_size=16, unroll=7, learning_rate=3e-3, entropy_cost=0.1, log_frames=3000
    )
    train(config, never)
    lines = [json.loads(line) for line in (config.run_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["auxiliary/accuracy"] < 0.6
    assert lines[-1]["auxiliary/accuracy"] > 0.75  # Uniform guessing: 1/3. At the walls two actions look alike.
    assert lines[-1]["losses/auxiliary"] < 0.5 * lines[0]["losses/auxiliary"]
