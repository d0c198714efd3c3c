"""The example of docs/retrospective.md, run as it stands there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "retrospective.md"


@pytest.mark.slow
def test_the_documented_monitor_raises_its_alarm_for_weak_motors(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    found: dict[str, object] = {"__name__": "example"}
    exec(compile(code, PAGE.name, "exec"), found)
    alarm = found["alarm"]
    assert 0 < alarm.measured_rate < 0.03
    assert found["sound"] < 0.04
    assert found["weak"] > 5 * found["sound"]
    assert "weak motors" in capsys.readouterr().out
