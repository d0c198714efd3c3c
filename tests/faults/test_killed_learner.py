"""kill -9 of the learner, again and again, at moments that nobody chose: the run ends as if nothing had happened."""

import json
import os
import random
import signal
import time

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from learners.checkpoint import read_checkpoint
from tests.running import count_lines, start_command, start_training, wait_until

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
def test_a_serial_run_killed_at_random_equals_one_that_was_not(make_config, tmp_path, kills):
    """Checkpoints are written all the time, so that kills fall into the writing of them."""
    frames = 500 * kills
    whole, broken = (
        make_config(run_dir=str(tmp_path / name), frames=frames, log_frames=100, checkpoint_minutes=1e-6, core_size=8)
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

    ours, theirs = newest(broken.run_path), newest(whole.run_path)
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name in ours.tensors:
        assert torch.equal(ours.tensors[name], theirs.tensors[name]), name
    assert ours.tensors["learner.counters"][0] == frames
    assert [line["frame"] for line in lines(broken.run_path)] == list(range(100, frames + 1, 100))
    for one, other in zip(lines(broken.run_path), lines(whole.run_path), strict=True):
        assert steady(one) == steady(other)
    assert not list(broken.run_path.rglob(".*.tmp"))


@pytest.mark.slow
def test_a_ray_run_killed_twenty_times_ends_with_one_curve(tmp_path):
    run_dir, frames, kills = tmp_path / "run", 400_000, 20
    new = ["--game", "catch", "--torso", "shallow", "--batch-size", 8, "--unroll", 5, "--num-actors", 1, "--eval-episodes", 0,
           "--frames", frames, "--log-frames", 2000, "--checkpoint-minutes", 0.02]  # fmt: skip
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


def test_a_run_killed_before_its_first_checkpoint_starts_again_and_says_so(make_config, caplog, never):
    from studies.training import train

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


def test_a_run_killed_in_its_first_write_leaves_nothing_in_the_way_of_the_next(make_config, never):
    from studies.training import train

    config = make_config(frames=40)
    config.run_path.mkdir()
    (config.run_path / ".config.json.123.tmp").write_text("{")
    assert train(config, never)["frames"] == 40
    (config.run_path / ".metrics.jsonl.123.tmp").write_text("{")
    assert train(config.with_run(resume=True, frames=60), never)["frames"] == 60
    assert not list(config.run_path.rglob(".*.tmp"))
