"""kill -9 of the learner, at moments that nobody chose and at the worst: the run ends as if nothing had happened."""

import json
import os
import random
import signal
import time
from collections import Counter

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from configs.train import ActorConfig, AgentConfig, EnvConfig, LearnerConfig, RunConfig, TrainConfig
from tests.helpers.running import PROCESSES, count_lines, start_command, start_training, train_here, wait_until
from training.storage import checkpoint
from training.storage.checkpoint import read_checkpoint

VARY = ("time/", "memory/", "charts/frames_per_second", "charts/wall_seconds")


def lines(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def steady(line):
    """Without what depends on the machine."""
    return {name: value for name, value in line.items() if not name.startswith(VARY)}


def newest(run_dir):
    return read_checkpoint(max((run_dir / "checkpoints").glob("frame_*")))


def curve(run_dir):
    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars("losses/total")]


def newest_frame(run_dir):
    return max((int(path.stem.removeprefix("frame_")) for path in run_dir.glob("checkpoints/frame_*")), default=-1)


def let_progress(process, run_dir):
    """Until there is a new checkpoint, or the run is done."""
    before = newest_frame(run_dir)
    while process.is_alive() and newest_frame(run_dir) == before:
        time.sleep(0.01)


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_a_serial_run_killed_at_random_equals_an_uninterrupted_one(make_config, tmp_path, kills):
    """Checkpoints are written all the time, so that kills fall into the writing of them."""
    frames = 500 * kills
    whole, broken = (
        make_config(run_dir=str(tmp_path / name), frames=frames, log_frames=100, checkpoint_minutes=1e-6, lstm_size=8)
        for name in ("whole", "broken")
    )
    process = start_training(whole)
    process.join()
    assert process.exitcode == 0
    moments, survived, in_writing = random.Random(kills), 0, 0
    for _ in range(kills):
        process = start_training(broken)
        let_progress(process, broken.run_path)
        time.sleep(moments.uniform(0.0, 0.2))
        if not process.is_alive():
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        survived += 1
        in_writing += any(broken.run_path.rglob(".*.tmp"))
        broken = broken.with_run(resume=True)
    process = start_training(broken)
    process.join()
    assert process.exitcode == 0
    print(f"{survived} kills survived, {in_writing} of them while a file was being written")
    assert survived >= kills / 2

    assert_same_run(broken, whole)


def assert_same_run(broken, whole):
    ours, theirs = newest(broken.run_path), newest(whole.run_path)
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name in ours.tensors:
        assert torch.equal(ours.tensors[name], theirs.tensors[name]), name
    assert ours.tensors["learner.counters"][0] == whole.run.frames
    assert [line["frame"] for line in lines(broken.run_path)] == list(range(100, whole.run.frames + 1, 100))
    for one, other in zip(lines(broken.run_path), lines(whole.run_path), strict=True):
        assert steady(one) == steady(other)
    assert not list(broken.run_path.rglob(".*.tmp"))


def train_to_a_write(config, file, function, call):
    """To be the whole life of a process, which ends in the writing of `file`: at a call of a function of the system."""
    calls = Counter()

    def dying(name, real):
        def act(*arguments, **options):
            calls[name] += 1
            if (name, calls[name]) == (function, call):
                if name == "fdopen":
                    os.write(arguments[0], b"half a checkpoint")
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return act

    def watching(path, data):
        if path.name == file:
            for name in ("fdopen", "fsync", "replace", "unlink"):
                setattr(os, name, dying(name, getattr(os, name)))
        write(path, data)

    write, checkpoint.write_atomically = checkpoint.write_atomically, watching
    train_here(config)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Long enough for a best checkpoint, with one at every update."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    config = TrainConfig(
        env=EnvConfig("catch"), agent=AgentConfig("shallow", lstm_size=8), learner=LearnerConfig(unroll=5, batch_size=4),
        actors=ActorConfig("serial"), run=RunConfig(1500, run_dir=str(path), log_frames=100, checkpoint_minutes=1e-6,
                                                    eval_episodes=0),
    )  # fmt: skip
    process = start_training(config)
    process.join()
    assert process.exitcode == 0
    assert (path / "checkpoints" / "best.safetensors").exists()
    return config


@pytest.mark.parametrize("file", ["frame_000000000060.safetensors", "best.safetensors"])
@pytest.mark.parametrize(
    ("function", "call", "left"),
    [("fdopen", 1, "half"), ("fsync", 1, "whole"), ("replace", 1, "whole"), ("fsync", 2, "none"), ("unlink", 3, "none")],
    ids=["writing", "flushing", "renaming", "flushing the directory", "after it"],
)
def test_a_run_killed_while_writing_a_checkpoint_equals_an_uninterrupted_one(whole_run, tmp_path, file, function, call, left):
    broken = whole_run.with_run(run_dir=str(tmp_path / "broken"))
    process = PROCESSES.Process(target=train_to_a_write, args=(broken, file, function, call))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    checkpoints = broken.run_path / "checkpoints"
    unfinished = [path.read_bytes() == b"half a checkpoint" for path in checkpoints.glob(".*.tmp")]
    assert unfinished == {"half": [True], "whole": [False], "none": []}[left]
    assert (checkpoints / file).exists() == (left == "none")
    broken = broken.with_run(resume=True)
    process = start_training(broken)
    process.join()
    assert process.exitcode == 0
    assert_same_run(broken, whole_run)
    ours, theirs = (read_checkpoint(run.run_path / "checkpoints" / "best.safetensors") for run in (broken, whole_run))
    assert all(torch.equal(ours.tensors[name], theirs.tensors[name]) for name in theirs.tensors)


@pytest.mark.slow
def test_a_ray_run_killed_twenty_times_ends_with_one_curve(tmp_path):
    run_dir, frames, kills = tmp_path / "run", 400_000, 20
    new = ["--game", "catch", "--torso", "shallow", "--batch-size", 8, "--unroll", 5, "--num-actors", 1, "--learners", 1,
           "--eval-episodes", 0, "--frames", frames, "--log-frames", 2000, "--checkpoint-minutes", 0.02]  # fmt: skip
    moments, recoveries = random.Random(0), []
    for kill in range(kills):
        started, before = time.monotonic(), newest_frame(run_dir)
        process = start_command("train", "--run-dir", run_dir, *(["--resume"] if kill else new))
        try:
            if kill % 4 != 1:  # Every fourth dies while it is still starting.
                wait_until(lambda seen=before: newest_frame(run_dir) > seen, process=process)
                recoveries.append(time.monotonic() - started)
            time.sleep(moments.uniform(0.0, 3.0))
        finally:
            process.kill()
            process.communicate()
    process = start_command("train", "--run-dir", run_dir, "--resume")
    errors = process.communicate(timeout=900)[1]
    assert process.returncode == 0, errors
    print(f"{kills} kills; {sorted(recoveries)[len(recoveries) // 2]:.1f} s (median) from a start to its first checkpoint")
    assert json.loads((run_dir / "result.json").read_text())["frames"] == frames
    expected = list(range(2000, frames + 1, 2000))
    assert [line["frame"] for line in lines(run_dir)] == expected
    assert curve(run_dir) == expected


def test_a_run_killed_before_its_first_checkpoint_starts_again_with_a_warning(make_config, caplog, never):
    from training.loop import train

    config = make_config(frames=40)
    train(config, never)
    for path in config.run_path.iterdir():
        if path.name != "config.json" and path.is_file():
            path.unlink()
    for path in (config.run_path / "checkpoints").iterdir():
        path.unlink()
    assert train(config.with_run(resume=True), never)["frames"] == 40
    assert "starting from the first frame" in caplog.text
    assert count_lines(config.run_path / "metrics.jsonl") == 2


def test_a_run_killed_in_its_first_write_does_not_block_the_next(make_config, never):
    from training.loop import train

    config = make_config(frames=40)
    config.run_path.mkdir()
    (config.run_path / ".config.json.123.tmp").write_text("{")
    assert train(config, never)["frames"] == 40
    (config.run_path / ".metrics.jsonl.123.tmp").write_text("{")
    assert train(config.with_run(resume=True, frames=60), never)["frames"] == 60
    assert not list(config.run_path.rglob(".*.tmp"))
