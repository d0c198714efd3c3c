"""Printed commands can be pasted: a shell without our PATH runs them, in a directory with a space in its name."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import launch
from configs.errors import StopRequested
from studies.compare import scheduler as compare
from studies.reproduce import reproduce
from tests.helpers.running import TINY, interrupted
from tests.helpers.trial_files import make_sweep, write_trial
from training.outcome import resume_arguments

COUNTER = "gym:tests.helpers.counter:Counter-v0"

pytestmark = pytest.mark.usefixtures("signals")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory; no environment is activated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


def shown(text, words):
    return re.search(rf"{words}: (.+)$", text, flags=re.MULTILINE)[1]


def paste(command, here, path="/usr/bin:/bin"):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, shell=True, cwd=here, env=environment | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_printed_commands_continue_and_watch_a_run(capsys, monkeypatch, here):
    interrupted(monkeypatch, "train", "--run-dir", "my runs/it's one", *TINY, "--eval-episodes", "0")
    captured = capsys.readouterr()
    assert "400 frames in" in paste(shown(captured.out, "continue with"), here)
    assert "losses/total" in paste(shown(captured.err, "watch it with") + " --inspect", here)


def test_the_printed_command_names_third_party_games_and_the_cluster(make_config):
    config = make_config(game=COUNTER, pool="ray", ray_address="127.0.0.1:6379", run_dir="my run")
    flags = ["--run-dir", "my run", "--resume", "--game", COUNTER, "--ray-address", "127.0.0.1:6379"]
    assert resume_arguments(config) == flags


def test_the_printed_commands_continue_and_report_a_sweep(capsys, monkeypatch, here):
    sweep = make_sweep(here / "my sweep", seeds=1)
    for trial in sweep.trials:
        write_trial(trial, score=1.0)
    arguments = ["compare", "--games", "catch", "--tasks", "none", "--out", "my sweep"]
    monkeypatch.setattr(compare, "compare", lambda *_: None)
    assert launch.main(arguments) == 0
    output = capsys.readouterr().out
    assert "report: my sweep/report.html" in paste(shown(output, "make the report with"), here)
    assert shlex.split(shown(output, "watch the learning curves with"))[-2:] == ["--logdir", "my sweep"]

    def stopping(*_):
        raise StopRequested

    monkeypatch.setattr(compare, "compare", stopping)
    assert launch.main(arguments) == 0
    output = capsys.readouterr().out
    assert shlex.split(shown(output, "continue with"))[-len(arguments) :] == arguments
    assert shlex.split(shown(output, "report of the finished trials"))[-2:] == ["report", "my sweep"]


def test_the_printed_command_continues_a_study_with_its_flags(capsys, monkeypatch):
    def stopping(*_):
        raise StopRequested

    monkeypatch.setitem(reproduce.STUDIES, "lambda", stopping)
    arguments = ["reproduce", "lambda", "--out", "my results", "--runs", "3"]
    assert launch.main(arguments) == 0
    assert shlex.split(shown(capsys.readouterr().out, "continue with"))[-len(arguments) :] == arguments


def test_the_help_command_in_an_error_works(capsys, here):
    assert launch.main(["train", "--nonsense"]) == 2
    command = re.search(r"\((.+) explains every flag\)", capsys.readouterr().err)[1]
    assert "--frames" in paste(command, here)


def test_the_installed_command_prints_its_own_name(tmp_path):
    """By its name where the shell finds it, else by its path."""
    directory = tmp_path / "my bin"
    directory.mkdir()
    script = directory / "hindcast"
    root = os.path.dirname(launch.__file__)
    script.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {root!r})\nimport launch\nsys.exit(launch.main())\n")
    script.chmod(0o755)
    for path, expected in ((f"{directory}:/usr/bin:/bin", "hindcast report"), ("/usr/bin:/bin", "'my bin/hindcast' report")):
        environment = os.environ | {"PATH": path}
        done = subprocess.run([script, "report"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert f"({expected} --help explains every flag)" in done.stderr
        paste(f"{expected} --help", tmp_path, path)


def test_a_program_is_printed_by_name_only_if_the_shell_finds_it(monkeypatch, here):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    assert shutil.which("python")
    monkeypatch.setattr(sys, "executable", shutil.which("python"))
    assert launch.launch_command("games").startswith("python ")
    monkeypatch.setattr(sys, "executable", str(here / "python"))
    assert launch.launch_command("games").startswith("./python ")
