"""Disks that are full, files that are damaged."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import launch
from configs.commands import EvaluateConfig
from configs.errors import CheckpointError, RunError
from learners.learner import Learner
from tests.helpers.running import ROOT, count_lines, wait_until
from training.evaluation import evaluate_run
from training.loop import train
from training.metrics import MetricsWriter
from training.storage.checkpoint import Checkpoint, CheckpointDirectory, read_checkpoint


def make(frame):
    return Checkpoint({"learner.x": torch.full((50,), float(frame)), "mask": torch.ones(3, dtype=torch.bool)}, {"a": [frame]})


def damage(data, rng):
    """One corruption of many kinds."""
    data = bytearray(data)
    kind, place = rng.randrange(6), rng.randrange(len(data))
    if kind == 0:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        data[place : place + rng.randrange(1, 64)] = rng.randbytes(rng.randrange(64))
    elif kind == 3:
        data[place:place] = rng.randbytes(rng.randrange(1, 64))
    elif kind == 4:
        data[place:] = bytes(len(data) - place)
    else:
        data[:8] = rng.choice([0, 1, len(data), 2**31, 2**63, 2**64 - 1]).to_bytes(8, "little")
    return bytes(data)


@pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_every_corruption_of_a_checkpoint_is_detected(tmp_path, count):
    directory, rng, noticed = CheckpointDirectory(tmp_path, keep=2), random.Random(count), 0
    path = directory.save(make(1), 1, is_best=False)
    whole, content = path.read_bytes(), read_checkpoint(path)
    for _ in range(count):
        path.write_bytes(damage(whole, rng))
        try:
            read = read_checkpoint(path)
        except CheckpointError:
            noticed += 1
        else:  # The corruption hit a blank, or left the file as it was.
            assert read.values == content.values
            assert read.tensors.keys() == content.tensors.keys()
            assert all(torch.equal(read.tensors[name], content.tensors[name]) for name in read.tensors)
    print(f"{count} corruptions tried, {noticed} refused, the others changed nothing")
    assert noticed > 0.9 * count


def test_a_flipped_bit_falls_back_to_the_previous_checkpoint_with_a_warning(tmp_path, caplog):
    directory = CheckpointDirectory(tmp_path, keep=3)
    directory.save(make(1), 1, is_best=False)
    for frame in (2, 3):
        path = directory.save(make(frame), frame, is_best=False)
        data = bytearray(path.read_bytes())
        data[-100] ^= 4
        path.write_bytes(data)
    assert directory.newest().values == {"a": [1]}
    assert caplog.text.count("its checksum does not fit its content; using frame_000000000001.safetensors instead") == 2
    os.truncate(tmp_path / "frame_000000000001.safetensors", 0)
    with pytest.raises(CheckpointError, match=r"frame_000000000003.* is damaged"):
        directory.newest()


def test_leftovers_of_killed_writes_are_removed_by_the_next_command(tmp_path):
    directory = CheckpointDirectory(tmp_path, keep=3)
    (tmp_path / ".frame_000000000001.safetensors.123.tmp").write_bytes(b"half")
    directory.save(make(2), 2, is_best=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.safetensors", "frame_000000000002.safetensors"]


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@pytest.fixture(params=[errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
def bad_disk(request, monkeypatch):
    """A disk that refuses when a test says so, as one that is full or as one that has become read-only."""

    class Disk:
        refuses = False
        reason = os.strerror(request.param)

    def refusing(function, is_write=lambda *_: True):
        def call(*arguments, **options):
            if Disk.refuses and is_write(*arguments):
                raise OSError(request.param, Disk.reason)
            return function(*arguments, **options)

        return call

    for name in ("pwrite", "fsync"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    if request.param == errno.EROFS:
        monkeypatch.setattr(os, "open", refusing(os.open, lambda path, flags, *_: flags & WRITING))
        for name in ("mkdir", "unlink", "replace"):
            monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    return Disk


def test_a_temporary_write_error_does_not_change_the_run(make_config, never, monkeypatch, bad_disk, caplog):
    step = Learner.step

    def filling(self, batch):
        bad_disk.refuses = 3 <= self.version < 7
        return step(self, batch)

    monkeypatch.setattr(Learner, "step", filling)
    config = make_config(checkpoint_minutes=1e-9)
    assert train(config, never)["frames"] == 200
    assert count_lines(config.run_path / "metrics.jsonl") == 10
    assert f"metrics cannot be written and wait in memory: {bad_disk.reason}" in caplog.text
    assert f"no checkpoint could be saved at frame 80: {bad_disk.reason}" in caplog.text
    newest = max((config.run_path / "checkpoints").glob("frame_*"))
    assert read_checkpoint(newest).tensors["learner.counters"].tolist() == [200, 10]


def test_checkpoints_are_not_ahead_of_the_metrics(tmp_path, bad_disk):
    writer = MetricsWriter(tmp_path)
    bad_disk.refuses = True
    writer.write(10, {"x": 1.0})
    with pytest.raises(OSError, match=bad_disk.reason):
        writer.sync()
    bad_disk.refuses = False
    writer.write(20, {"x": 2.0})
    writer.sync()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"frame": 10, "x": 1.0}\n{"frame": 20, "x": 2.0}\n'
    writer.close()


def test_a_run_that_cannot_save_its_last_checkpoint_fails(make_config, never, monkeypatch, bad_disk):
    step = Learner.step

    def filling(self, batch):
        bad_disk.refuses = self.version == 9
        return step(self, batch)

    monkeypatch.setattr(Learner, "step", filling)
    config = make_config()
    with pytest.raises(ValueError, match=f"frame 200 could not be saved: {bad_disk.reason}; --resume"):
        train(config, never)
    monkeypatch.setattr(Learner, "step", step)
    bad_disk.refuses = False
    assert train(config.with_run(resume=True), never)["frames"] == 200


@pytest.mark.parametrize("bad_disk", [errno.EROFS], indirect=True)
def test_a_directory_that_is_read_only_is_refused_in_one_line(make_config, never, bad_disk, capsys):
    config = make_config(frames=40)
    train(config, never)
    run = config.run_path
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    bad_disk.refuses = True
    for arguments in (["train", "--resume"], ["evaluate"], ["train", "--game", "catch", "--pool", "serial"]):
        path = run / "new" if "--game" in arguments else run
        assert launch.main([*arguments, "--run-dir", str(path)]) == 2
        assert capsys.readouterr().err == f"launch.py: cannot write to {path}: Read-only file system\n"
    bad_disk.refuses = False
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def limited(limit, *arguments):
    """A command whose every file the kernel cuts off at so many bytes: a refusal of its own, not an imitation."""
    code = f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # Or ffmpeg would die of it; a full disk only refuses.
sys.path.insert(0, {str(ROOT)!r})
import launch
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.exit(launch.main(sys.argv[1:]))
"""
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def test_a_limit_on_file_sizes_is_reported_in_one_line(tmp_path):
    flags = f"--game catch --torso shallow --pool serial --frames 400 --run-dir {tmp_path / 'run'}"
    done = limited(100_000, "train", *flags.split())
    assert done.returncode == 2, done.stderr
    assert "cannot write to" in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_during_a_video_keeps_the_scores(make_config, never):
    config = make_config(frames=40)
    train(config, never)
    evaluate = ["evaluate", "--run-dir", config.run_path, "--episodes", 2, "--video"]
    done = limited(2000, *evaluate)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "ffmpeg could not write it; the disk may be full; the scores are in" in done.stderr
    assert len(json.loads((config.run_path / "evaluation.json").read_text())["scores"]) == 2
    assert list((config.run_path / "videos").iterdir()) == []

    (config.run_path / "evaluation.json").unlink()
    (config.run_path / "videos").rmdir()
    (config.run_path / "videos").write_text("a plain file")
    with pytest.raises(RunError, match="File exists; the scores are in"):
        evaluate_run(EvaluateConfig(str(config.run_path), episodes=2, video=True), never)
    assert json.loads((config.run_path / "evaluation.json").read_text())["video"] is None


NAMESPACE = ["unshare", "--map-root-user", "--mount"]


def in_namespace(script):
    return subprocess.run([*NAMESPACE, "sh", "-ec", script], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_real_full_disk(tmp_path):
    """A file system of 24 MB, filled and emptied while the run trains on it and logs to it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=24m none {disk}"
    if in_namespace(mount).returncode:
        pytest.skip("no file system can be mounted here")
    command = [sys.executable, ROOT / "launch.py", "train", "--game", "catch", "--torso", "shallow", "--pool", "serial",
               "--frames", 10**9, "--log-frames", 1000, "--checkpoint-minutes", 0.01, "--run-dir", disk / "run"]  # fmt: skip
    script = f"{mount}; exec {' '.join(map(str, command))} 2> {disk}/log"
    process = subprocess.Popen([*NAMESPACE, "sh", "-ec", script], stdout=subprocess.PIPE, text=True)
    inside = Path(f"/proc/{process.pid}/root{disk}")
    metrics, filler = inside / "run" / "metrics.jsonl", inside / "filler"
    try:
        wait_until(lambda: count_lines(metrics) >= 5, process=process)
        fill(filler)
        before = count_lines(metrics)
        time.sleep(10)
        assert process.poll() is None
        filler.unlink()
        wait_until(lambda: count_lines(metrics) > before + 5, process=process)
        with (inside / "log").open() as log:
            process.terminate()
            process.communicate(timeout=30)
            errors = log.read()
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert "no checkpoint could be saved" in errors
    assert "Traceback" not in errors


def fill(path):
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.slow
def test_a_read_only_directory(make_config, tmp_path, never):
    config = make_config(frames=40)
    train(config, never)
    run = config.run_path
    for command in (f"train --resume --run-dir {run}", f"evaluate --run-dir {run}", f"train --game catch --run-dir {run}/new"):
        done = in_namespace(
            f"mount --bind {run} {run}; mount -o remount,ro,bind {run}; exec {sys.executable} {ROOT}/launch.py {command}"
        )
        if "mount" in done.stderr:
            pytest.skip("nothing can be mounted here")
        assert done.returncode == 2
        assert "cannot write to" in done.stderr
        assert "Read-only file system" in done.stderr
        assert "Traceback" not in done.stderr
