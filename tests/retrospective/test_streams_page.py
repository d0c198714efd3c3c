"""The example of docs/results/streams.md, run as it stands there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "results" / "streams.md"


def test_the_documented_detector_notices_the_leak(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    found: dict[str, object] = {"__name__": "example"}
    exec(compile(code, PAGE.name, "exec"), found)
    alarms = found["alarms"]
    assert alarms[0.0] < 0.1
    assert alarms[1.0] > 0.9
    assert capsys.readouterr().out.endswith("INVALID 1\n")
