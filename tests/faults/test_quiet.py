"""What goes wrong with Ray is one line on the terminal; Ray's own words are in the run's ray.log."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.running import ROOT, count_lines, rollout_actors, start_command, wait_until

TRAIN = ["train", "--game", "catch", "--torso", "shallow", "--batch-size", 4, "--unroll", 5, "--log-frames", 100,
         "--num-actors", 1, "--eval-episodes", 0]  # fmt: skip


@pytest.mark.slow
def test_a_killed_actor_is_one_line(tmp_path):
    run_dir = tmp_path / "run"
    process = start_command(*TRAIN, "--frames", "10M", "--run-dir", run_dir)
    try:
        wait_until(lambda: count_lines(run_dir / "metrics.jsonl") > 1, process=process)
        rollout_actors(process.pid)[0].kill()
        lines = count_lines(run_dir / "metrics.jsonl")
        wait_until(lambda: count_lines(run_dir / "metrics.jsonl") > lines + 2, process=process)
        wait_until(lambda: "(raylet)" in (run_dir / "ray.log").read_text(), process=process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert "raylet" not in output + errors
    assert sum("actor 0 failed and is replaced" in line for line in errors.splitlines()) == 1


@pytest.fixture
def head(tmp_path_factory):
    """A cluster of this machine that asks for a token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    directory = tmp_path_factory.mktemp("r")
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--port", str(port), "--num-cpus", "1"]
    command += ["--node-ip-address", "127.0.0.1", "--temp-dir", str(directory), "--include-dashboard", "false"]
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64, "HOME": str(directory)}
    with (directory / "head.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 90
        while "Ray runtime started" not in (directory / "head.log").read_text():
            assert process.poll() is None, (directory / "head.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "complaint"),
    [("", "the cluster asks for a token, and there is none"), ("b" * 64, "the cluster refuses the token of this machine")],
)
def test_a_missing_or_wrong_token_is_one_line(head, tmp_path, token, complaint):
    run_dir = tmp_path / "run"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    if token:
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    command = [sys.executable, str(ROOT / "launch.py"), *map(str, TRAIN), "--run-dir", str(run_dir), "--ray-address", head]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    *before, error = done.stderr.splitlines()
    assert complaint in error
    assert "RAY_AUTH_TOKEN" in error
    assert all(line.startswith(("starting", "joining")) for line in before)
    assert not run_dir.exists()
