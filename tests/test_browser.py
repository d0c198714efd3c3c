"""TensorBoard and the report, opened in a real browser: `make test-browser`."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import pytest

from configs.commands import ReportConfig
from studies.compare.progress import Follower
from studies.compare.tensorboard import SweepBoard
from studies.report.report import make_report
from tests.helpers.browser import EXECUTABLE, Browser
from tests.helpers.trial_files import make_sweep, write_trial
from training.loop import train

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium is installed (Debian: apt-get install chromium)"),
]


@pytest.fixture
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def sweep(tmp_path):
    """Finished trials of two games, with what a sweep writes for TensorBoard."""
    sweep = make_sweep(tmp_path / "sweep", games=("catch", "puddleworld"))
    board = SweepBoard(sweep)
    for trial in sweep.trials:
        write_trial(trial, score=0.25)
        board.add(trial, Follower(trial.path / "metrics.jsonl").new_lines())
        board.finish(trial)
    board.close()
    return sweep


@pytest.fixture
def tensorboard(sweep):
    """The address of a TensorBoard that has read the sweep."""
    with serve(sweep.out, "overlay/none") as address:
        yield address


@contextmanager
def serve(directory, run):
    """The address of a TensorBoard that has read the run of that name."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), "--port", str(port), "--host", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 90
        while run not in runs(address):
            assert process.poll() is None, "TensorBoard is gone"
            assert time.monotonic() < deadline, f"TensorBoard has not read {run}"
            time.sleep(0.3)
        yield address
    finally:
        process.terminate()
        process.wait()


def runs(address):
    try:
        with urllib.request.urlopen(f"{address}/data/runs", timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return []


def test_tensorboard_overlays_tasks_and_lists_trials(browser, tensorboard):
    four = "Matches (4)"  # Two tasks and two seeds, for each of two games.
    text = browser.read(
        f"{tensorboard}/#custom_scalars", "a chart for each game, a colour for each agent", four, four, "overlay/reverse_gvf"
    )
    assert text.count(four) == 2
    for game in ("catch", "puddleworld"):
        assert f"\n{game}\n" in "".join(f"\n{line.strip()}\n" for line in text.splitlines())
    text = browser.read(f"{tensorboard}/#hparams", "final/score", "catch-none-seed1", "puddleworld-reverse_gvf-seed2")
    for heading in ("game", "task", "seed", "0.25000"):
        assert heading in text


def test_tensorboard_opens_a_run_on_its_return(browser, make_config, never, tmp_path):
    train(make_config(task="reverse_gvf", meta_interval=2, eval_episodes=1), never)
    with serve(tmp_path, "run") as address:
        for tab in ("timeseries", "scalars"):
            text = browser.read(f"{address}/#{tab}", "1_return", "2_length", "actors")
            places = [text.index(tag) for tag in ("1_return", "2_length", "3_frames_per_second", "actors")]
            assert places == sorted(places)
        text = browser.read(f"{address}/#custom_scalars", "learning", "lag and speed", "questions", "meta-gradient")
        assert text.index("return of the last 100 games") < text.index("length of the last 100 games")
        text = browser.read(f"{address}/#hparams", "final/score", "changed", "reverse_gvf")
        assert "unroll=5, batch_size=4, " in text
        assert "meta_interval=2" in text


def test_the_report_opens_from_disk(browser, sweep):
    page = make_report(ReportConfig(directories=(str(sweep.out),))).page
    text = browser.read(page.as_uri(), "Does reverse_gvf help?", "Reproducibility")
    assert "8 of 8 trials are finished." in text
    widths = "[...document.images].map(image => image.naturalWidth)"
    shown = browser.call("Runtime.evaluate", expression=widths, returnByValue=True)["result"]["value"]
    assert len(shown) == 4
    assert min(shown) > 500
