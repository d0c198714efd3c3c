"""The command line as a whole: help, version, directories, output."""

import json
import re
import subprocess
import sys
from importlib import metadata

import pytest

import launch
from envs.grid_games import GRIDS
from studies.command_line import EXAMPLES, FIRST_FLAGS
from tests.command_line.refusal import refusal
from tests.helpers.running import ROOT, TINY
from training.storage.run_directory import provenance

pytestmark = pytest.mark.usefixtures("signals")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train", *TINY, "--run-dir"], "starting: importing torch\n"),
        (["train", "--resume", "--run-dir"], "starting: importing torch\n"),
        (["compare", "--games", "catch", "--tasks", "none", "--out"], "starting: importing torch and ray\n"),
    ],
)
def test_slow_imports_are_announced(tmp_path, arguments, line):
    """In a process that cannot import torch, the line is all that comes of it."""
    code = f"""
import sys
import launch
from studies.command_line import EXAMPLES, FIRST_FLAGS
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "ray"):
            print("IMPORT", file=sys.stderr, flush=True)
            sys.exit(3)
sys.meta_path.insert(0, Refuses())
launch.main({[*arguments, str(tmp_path / "run")]})
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, line + "IMPORT\n" * done.stderr.count("IMPORT"))


def test_unknown_commands_and_no_command(capsys):
    assert "there is train, evaluate" in refusal(capsys, "fly")
    assert launch.main([]) == 2
    assert launch.main(["--help"]) == 0
    assert "benchmark" in capsys.readouterr().out


WITH_A_DIRECTORY = [
    ["train", *TINY, "--run-dir"],
    ["train", "--resume", "--run-dir"],
    ["evaluate", "--run-dir"],
    ["compare", "--games", "catch", "--tasks", "none", "--out"],
    ["report"],
]
"""Commands that a directory completes."""


@pytest.mark.parametrize("command", WITH_A_DIRECTORY)
def test_a_directory_name_that_is_too_long(capsys, tmp_path, command):
    assert "File name too long" in refusal(capsys, *command, tmp_path / ("x" * 300))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", WITH_A_DIRECTORY)
def test_a_file_where_a_directory_is_wanted(capsys, tmp_path, command):
    path = tmp_path / "file"
    path.write_text("mine")
    assert f"{path} is a file" in refusal(capsys, *command, path)
    assert path.read_text() == "mine"


def test_invalid_flags_of_other_commands_are_refused(capsys, tmp_path):
    assert "holds no run" in refusal(capsys, "evaluate", "--run-dir", tmp_path)
    assert "--episodes must be positive" in refusal(capsys, "evaluate", "--run-dir", tmp_path, "--episodes", "0")
    assert "--run-dir" in refusal(capsys, "evaluate")
    assert "--seed must be at least 0, not -1" in refusal(capsys, "evaluate", "--run-dir", tmp_path, "--seed", "-1")
    assert "--seed must be at least 0, not -1" in refusal(capsys, "reproduce", "lambda", "--out", tmp_path, "--seed", "-1")
    assert "--seconds must be positive" in refusal(capsys, "benchmark", "--seconds", "0")
    many = "1" + 400 * "0"
    too_large = "must be at most 9223372036854775807, not a number of 401 digits"
    for arguments in (
        ["evaluate", "--run-dir", tmp_path, "--episodes", many],
        ["reproduce", "lambda", "--out", tmp_path, "--seed", many],
        ["benchmark", "--unroll", many],
        ["train", "--seed", many],
        ["compare", "--games", "catch", "--tasks", "none", "--out", tmp_path / "g", "--first-seed", many],
    ):
        assert too_large in refusal(capsys, *arguments)
    assert "--run-dir is empty" in refusal(capsys, "evaluate", "--run-dir", "")
    assert "--out is empty" in refusal(capsys, "reproduce", "lambda", "--out", "")
    assert "the name of a directory is empty" in refusal(capsys, "report", "")
    assert "did you mean breakout" in refusal(capsys, "benchmark", "--game", "brekout")
    assert "only uint8 images" in refusal(capsys, "benchmark", "--game", "gym:CartPole-v1")
    assert "--frobnicate" in refusal(capsys, "games", "--frobnicate")


def test_a_broken_pipe_other_than_stdout_is_raised(capfd, monkeypatch):
    def broken(arguments, stop):
        raise BrokenPipeError("of a socket")

    monkeypatch.setitem(launch.COMMANDS, "games", broken)
    with pytest.raises(BrokenPipeError, match="of a socket"):
        launch.main(["games"])


def test_games_are_listed_with_their_scores(capsys):
    assert launch.main(["games", "--json"]) == 0
    rows = {row["game"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) > 100
    assert (rows["pong"]["random"], rows["pong"]["human"]) == (-20.7, 14.6)
    assert rows["catch"]["human"] is None
    assert (rows["catch"]["optimal"], rows["pong"]["optimal"]) == (1.0, None)
    assert rows["collect_objects"]["optimal"] == pytest.approx(GRIDS["collect_objects"]().optimal_score)
    assert launch.main(["games"]) == 0
    assert "breakout" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "frames"),
    [("10_000_000", 10**7), ("1e6", 10**6), ("10M", 10**7), ("500k", 500_000), ("1.5M", 1_500_000), ("0.3m", 300_000)],
)
def test_notations_of_frame_counts(tmp_path, text, frames):
    flags = ["--frames", text, "--log-frames", text]
    run = launch.parse_train([*flags, "--task", "gvf", "--picture-frames", text]).run
    assert (run.frames, run.log_frames, run.picture_frames) == (frames, frames, frames)
    sweep = launch.parse_compare(["--games", "catch", "--tasks", "none", "--out", str(tmp_path / "sweep"), *flags])
    assert (sweep.frames, sweep.log_frames) == (frames, frames)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in launch.COMMANDS)])
def test_help_and_version_have_no_slow_imports(arguments):
    code = f"""
import sys
import launch
from studies.command_line import EXAMPLES, FIRST_FLAGS
try:
    code = launch.main({arguments})
except SystemExit as exit:
    code = exit.code
slow = {{"torch", "ray", "gymnasium", "ale_py", "numpy", "matplotlib"}} & set(sys.modules)
print(*slow, file=sys.stderr)
sys.exit(code or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "\n")
    assert ("hindcast 0.1.0" if arguments == ["--version"] else "usage: launch.py") in done.stdout


def test_the_version_and_its_commit(capsys, monkeypatch, tmp_path):
    assert launch.main(["--version"]) == 0
    commit = provenance()["commit"]
    assert capsys.readouterr().out == f"hindcast {metadata.version('hindcast')} (commit {commit})\n"
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", commit)
    monkeypatch.setattr("configs.installation.in_checkout", lambda: False)
    assert launch.main(["--version"]) == 0
    assert capsys.readouterr().out == f"hindcast {metadata.version('hindcast')}\n"


def test_the_examples_of_the_help_can_be_parsed(capsys):
    parsers = {"train": launch.parse_train, "compare": launch.parse_compare}
    assert launch.main(["--help"]) == 0
    text = capsys.readouterr().out
    for example in launch.EXAMPLES:
        assert launch.launch_command(*example.split()) in text
        command, *flags = example.split()
        parsers.get(command, lambda flags, name=command: launch.parse(launch.EvaluateConfig, name, flags))(flags)


def test_the_first_flags_of_train_exist_and_its_examples_can_be_parsed(capsys):
    with pytest.raises(SystemExit, match="0"):
        launch.main(["train", "--help"])
    first, every = capsys.readouterr().out.split("all flags:")
    for flag in FIRST_FLAGS:
        assert flag in first
        assert re.search(rf"\s{flag}[ ,]", every)
    *begun, resumed = EXAMPLES
    for example in begun:
        assert launch.parse_train(example.split()).run.frames in (500_000, 10_000_000)
    assert "--resume" in resumed
