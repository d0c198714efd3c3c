"""A log on a full disk, a pipe whose reader is dead, no stderr at all: progress is lost, the work is not."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

import launch
from studies.compare.progress import SweepProgress
from tests.helpers.running import ROOT
from training.progress import Progress

CODE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import training.progress
training.progress.PLAIN_SECONDS = 0.0
import launch
sys.exit(launch.main(sys.argv[1:]))
"""


@pytest.fixture
def dead_pipe():
    """The end to write to of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def train(run_dir, shell=(), **streams):
    flags = f"--game catch --torso shallow --pool serial --frames 400 --eval-episodes 2 --run-dir {run_dir}"
    command = [*shell, sys.executable, "-c", CODE, "train", *flags.split()]
    return subprocess.run(command, text=True, timeout=120, **streams)


@pytest.mark.parametrize("stderr", ["full", "dead", "closed"])
def test_a_run_finishes_although_stderr_fails(tmp_path, dead_pipe, stderr):
    with open("/dev/full", "w") as full:
        target = {"full": full, "dead": dead_pipe, "closed": None}[stderr]
        shell = ["sh", "-c", 'exec "$@" 2>&-', "sh"] if stderr == "closed" else []
        done = train(tmp_path / "run", shell, stdout=subprocess.PIPE, stderr=target)
    assert done.returncode == 0
    assert "480 frames in" in done.stdout
    assert "left" not in done.stdout
    assert json.loads((tmp_path / "run" / "result.json").read_text())["frames"] == 480


def test_a_closed_stdout_gives_no_traceback_and_the_result_is_written(tmp_path, dead_pipe):
    done = train(tmp_path / "run", stdout=dead_pipe, stderr=subprocess.PIPE)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["frames"] == 480


class Refusing(io.StringIO):
    """A terminal that is no more, or what is left of a log."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal, self.refused = terminal, 0

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.refused += 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_that_cannot_be_printed_is_left_out(monkeypatch, terminal):
    monkeypatch.setattr(threading, "excepthook", launch.report_thread)  # The bar is drawn by a thread.
    monkeypatch.setattr("training.progress.PLAIN_SECONDS", 0.0)
    stderr = Refusing(terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    progress = Progress("playing", 10)
    progress.update(5)
    progress.close()
    drawn = stderr.refused
    assert drawn
    table = SweepProgress([], {})
    table.show(set(), set(), {})
    table.close()
    assert stderr.refused > drawn
