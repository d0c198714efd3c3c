"""The example of docs/results/pagerank.md, run as it stands there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "results" / "pagerank.md"


def test_the_documented_rank_is_that_of_networkx(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    exec(compile(code, PAGE.name, "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == "True True\n"
