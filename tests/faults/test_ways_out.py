"""Ways out of a run: asked once, asked twice, killed. Whatever the way, nothing stays behind."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import launch
from actors import cluster, evaluator
from actors.guardian import clear
from configs.errors import PoolError
from tests.helpers.running import ROOT, count_lines, is_gone, rollout_actors, start_command, wait_until
from training.loop import train

TRAIN = ["train", "--game", "catch", "--torso", "shallow", "--frames", 10**9, "--batch-size", 4, "--unroll", 5,
         "--log-frames", 400, "--pool", "ray", "--learners", 1]  # fmt: skip


def plasma_files():
    """Ray's shared memory, as far as it has names."""
    return set(Path("/dev/shm").glob("plasma*"))


def send(process, number):
    """To every process of the run, as a terminal or a system that pre-empts it does; kill -9 to the learner alone."""
    family = [process, *process.children(recursive=True)]
    for member in family[:1] if number == signal.SIGKILL else family:
        with suppress(psutil.NoSuchProcess):
            member.send_signal(number)


@pytest.mark.parametrize(
    ("pool", "numbers"),
    [
        ("serial", [signal.SIGINT]),
        ("serial", [signal.SIGTERM]),
        ("ray", [signal.SIGINT]),
        pytest.param("ray", [signal.SIGTERM], marks=pytest.mark.slow),
        ("ray", [signal.SIGINT, signal.SIGINT]),
        ("ray", [signal.SIGKILL]),
    ],
)
def test_a_stopped_run_saves_if_it_can_and_leaves_no_processes_or_files(tmp_path, pool, numbers):
    """Started from another directory; with one actor suspended where the run is killed, which must not outlive it."""
    run_dir, memory = tmp_path / "run", plasma_files()
    process = start_command(*TRAIN, "--run-dir", run_dir, "--pool", pool, cwd=tmp_path)
    try:
        wait_until(lambda: count_lines(run_dir / "metrics.jsonl") >= 3, process=process)
        family = psutil.Process(process.pid).children(recursive=True)
        mine = {
            Path(path) for child in family for path in child.cmdline() if path.startswith(f"{tempfile.gettempdir()}/hindcast-")
        }
        assert bool(family) == (pool == "ray") == bool(mine)
        if numbers == [signal.SIGKILL]:
            os.kill(rollout_actors(process.pid)[0].pid, signal.SIGSTOP)
        asked = time.monotonic()
        for number in numbers:
            send(psutil.Process(process.pid), number)
            time.sleep(0.1)
        output, errors = process.communicate(timeout=10)
        left = time.monotonic() - asked
        wait_until(lambda: all(map(is_gone, family)), seconds=10)
        wait_until(lambda: not any(path.exists() for path in mine), seconds=10)
        print(f"{pool}, {[n.name for n in numbers]}: left after {left:.1f} s, all gone after {time.monotonic() - asked:.1f} s")
    finally:
        process.kill()
    assert plasma_files() <= memory
    assert "Traceback" not in errors
    assert not (run_dir / "result.json").exists()
    if len(numbers) == 1 and numbers[0] != signal.SIGKILL:
        assert process.returncode == 128 + numbers[0]
        assert "continue with" in output
        assert len(list((run_dir / "checkpoints").glob("frame_*.safetensors"))) == 2  # The first, and where it stopped.
    else:
        assert process.returncode == -numbers[0]


HANGING = """
import ctypes, launch
launch.Interrupt()
library, mutex = ctypes.{library}(None), ctypes.create_string_buffer(64)
print("begun", flush=True)
library.pthread_mutex_lock(mutex)
library.pthread_mutex_lock(mutex)
"""


@pytest.mark.parametrize("library", ["CDLL", "PyDLL"])
def test_the_second_interrupt_ends_a_native_call_that_does_not_return(library):
    """With and without Python's global lock released."""
    command = [sys.executable, "-c", HANGING.format(library=library)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
    finally:
        process.kill()
        process.wait()


def test_a_stopped_evaluation_writes_nothing(make_config, never, capsys):
    config, stop = make_config(frames=40), threading.Event()
    train(config, never)
    stop.set()
    launch.evaluate(["--run-dir", str(config.run_path)], stop)
    assert "nothing was written" in capsys.readouterr().out
    assert not (config.run_path / "evaluation.json").exists()


def test_a_failed_start_of_ray_restores_the_sigterm_handler(monkeypatch):
    """Ray takes the handler over before all else that may fail."""

    def failing(*_):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise PoolError("no Ray today")

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        ours = signal.getsignal(signal.SIGTERM)
        monkeypatch.setattr(cluster, "_start", failing)
        with pytest.raises(PoolError):
            cluster.start_ray("", 1)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stopped_video_keeps_the_scores(make_config, never, capsys, monkeypatch):
    config, stop = make_config(frames=40), threading.Event()
    train(config, never)
    record_frames = evaluator.record_frames

    def stopping(*arguments):
        stop.set()
        return record_frames(*arguments)

    monkeypatch.setattr(evaluator, "record_frames", stopping)
    launch.evaluate(["--run-dir", str(config.run_path), "--episodes", "2", "--video"], stop)
    assert "2 games: mean" in capsys.readouterr().out
    assert (config.run_path / "evaluation.json").exists()
    assert not (config.run_path / "videos").exists()


def test_the_guardian_kills_only_processes_of_its_own_session_directory(tmp_path):
    """Another Ray on the machine, another user's or another run's, is one that writes elsewhere."""
    ours, others = tmp_path / "ours", tmp_path / "others"
    processes = {}
    for name, path, mode in (("writer", ours, "wb"), ("reader", ours, "rb"), ("other", others, "wb"), ("owner", ours, "wb")):
        path.mkdir(exist_ok=True)
        file = path / ("driver_77.log" if name == "owner" else "worker.log")
        file.touch()
        with file.open(mode) as stream:
            command = [sys.executable, "-c", "import signal; signal.pause()"]
            processes[name] = subprocess.Popen(
                command, stdin=stream if mode == "rb" else None, stdout=stream if mode == "wb" else None
            )
    os.kill(processes["writer"].pid, signal.SIGSTOP)
    try:
        clear(ours, owner=77)
        assert processes["writer"].poll() is not None
        assert [processes[name].poll() for name in ("reader", "other", "owner")] == [None, None, None]
        assert not ours.exists()
        assert others.exists()
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
