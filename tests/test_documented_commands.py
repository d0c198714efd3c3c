"""The commands that the pages show: all can be parsed, and those of the README work, in miniature, one after the other."""

import re
import shlex
import subprocess
import sys

import pytest

import launch
from configs.commands import BenchmarkConfig, EvaluateConfig, ReportConfig, ReproduceConfig
from studies.command_line import parse
from tests.helpers.running import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = ("my_", "HEAD", "HOST", "hindcast_tasks", "GAME", "DIR")
"""Parts of commands that are about other people's code or machines, or stand for something."""
SHORT = {
    "train": "--frames 1280 --torso shallow --batch-size 4 --pool serial --learners 1 --eval-episodes 1 --log-frames 640",
    "resume": "--frames 2560",
    "evaluate": "--episodes 1",
    "compare": "--frames 400 --torso shallow --unroll 5 --batch-size 4 --seeds 2 --eval-episodes 1 --log-frames 100",
    "reproduce": "--runs 2",
    "benchmark": "--seconds 1 --no-tasks",
}


def commands(page):
    """Words of each command of `launch.py` in the page's blocks of code, without comments."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```(?:bash|sh)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines() if "launch.py" in line]
    return [words[words.index("launch.py") + 1 :] for words in lines if "launch.py" in words]


def check(command, *flags):
    """Parse a command as `launch.py` does; raises ConfigError or GameError if it would be refused."""
    if command == "train":
        launch.parse_train(flags)
    elif command == "compare":
        launch.parse_compare(flags).check_complete()
    elif command == "reproduce":
        parse(ReproduceConfig, command, flags[1:])
    elif command in ("evaluate", "report", "benchmark"):
        kinds = {"evaluate": EvaluateConfig, "report": ReportConfig, "benchmark": BenchmarkConfig}
        parse(kinds[command], command, flags)
    else:
        assert command in launch.COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_can_be_parsed(page):
    for words in commands(page):
        if not any(part in word for word in words for part in ELSEWHERE) and not {"--resume", "--help"} & set(words):
            check(*words)


def test_the_pages_have_commands():
    assert len(commands(ROOT / "README.md")) >= 8
    assert sum(len(commands(page)) for page in PAGES) >= 20


@pytest.mark.slow
def test_the_commands_of_the_readme_work_one_after_the_other(tmp_path):
    for words in commands(ROOT / "README.md"):
        if any(part in word for word in words for part in ELSEWHERE):
            continue
        short = SHORT.get("resume" if "--resume" in words else words[0], "").split()
        done = subprocess.run(
            [sys.executable, ROOT / "launch.py", *words, *short], cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
        assert done.stdout
    for made in ("runs/breakout/videos", "runs/catch/report.html", "results/lambda/summary.md"):
        assert (tmp_path / made).exists()
