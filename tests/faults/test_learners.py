"""Several learners: equal runs, dead and hung ranks, requests to stop, and settings that cannot work."""

import json
import logging
import signal
import socket
import threading
from contextlib import contextmanager, nullcontext

import psutil
import pytest
import torch

from actors.resources import Resources
from configs.errors import ConfigError, PoolError, RankError, RunError, StopRequested
from learners.process_group import listen
from tests.helpers.ranks import on_ranks
from tests.helpers.running import count_lines, is_gone, start_command, wait_until
from training import group
from training import round as round_module
from training.loop import train
from training.run_state import TrainingRun
from training.storage.checkpoint import Checkpoint
from training.storage.run_directory import RunDirectory

TRAIN = ["train", "--game", "catch", "--torso", "shallow", "--batch-size", 4, "--unroll", 5, "--log-frames", 100,
         "--pool", "serial", "--learners", 2, "--checkpoint-minutes", 0.01, "--eval-episodes", 1]  # fmt: skip


def rank_processes(process):
    return [
        child for child in psutil.Process(process.pid).children(recursive=True) if "RankProcess" in " ".join(child.cmdline())
    ]


def started(run_dir, *flags):
    process = start_command(*TRAIN, "--run-dir", run_dir, *flags)
    wait_until(lambda: count_lines(run_dir / "metrics.jsonl") >= 3, process=process)
    return process


@contextmanager
def stopped_after(updates, monkeypatch):
    """A stop request that comes in the course of a later update of rank 0."""
    stop, step = threading.Event(), round_module.Learner.step

    def counted(learner, batch):
        if learner.version >= updates:
            stop.set()
        return step(learner, batch)

    with monkeypatch.context() as patch:
        patch.setattr(round_module.Learner, "step", counted)
        yield stop


def final_state(config):
    return RunDirectory(config.run_path).checkpoints(keep=1).newest()


@pytest.mark.slow
def test_two_learners_are_reproducible_also_across_interrupt_and_resume(make_config, tmp_path, monkeypatch, never):
    options = {"task": "reverse_gvf", "meta_interval": 3, "learners": 2, "frames": 300, "num_questions": 4}
    whole = make_config(run_dir=str(tmp_path / "whole"), **options)
    parts = make_config(run_dir=str(tmp_path / "parts"), **options)
    train(whole, never)
    with stopped_after(7, monkeypatch) as stop:
        assert train(parts, stop) is None
    assert 0 < int(final_state(parts).tensors["learner.counters"][1]) < 15
    train(parts.with_run(resume=True), never)
    expected, found = final_state(whole), final_state(parts)
    assert found.tensors.keys() == expected.tensors.keys()
    assert {"pool.stack", "pool_1.stack"} <= found.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert torch.equal(found.tensors[name], tensor), name
    assert not torch.equal(found.tensors["pool.stack"], found.tensors["pool_1.stack"])
    assert found.values["episodes"] == expected.values["episodes"]


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_learners_start_again_when_one_dies_or_hangs(tmp_path, number):
    run_dir = tmp_path / "run"
    process = started(run_dir, "--frames", 2_000, "--learner-timeout", 10)
    (rank,) = rank_processes(process)
    rank.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    (line,) = [line for line in errors.splitlines() if "all learners start again from frame" in line]
    assert ("learner 1 failed" if number == signal.SIGKILL else "learner 1 did not answer for 10 s") in line
    assert json.loads((run_dir / "result.json").read_text())["frames"] == 2_000
    frames = [json.loads(line)["frame"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert frames == list(range(100, 2_001, 100))
    assert is_gone(rank)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_request_to_stop_saves_once_and_leaves_nothing(tmp_path, number):
    run_dir = tmp_path / "run"
    process = started(run_dir, "--frames", 10**9)
    family = psutil.Process(process.pid).children(recursive=True)
    listening = [connection.laddr.ip for member in (psutil.Process(process.pid), *rank_processes(process))
                 for connection in member.net_connections() if connection.status == psutil.CONN_LISTEN]  # fmt: skip
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert "Traceback" not in errors
    saved = RunDirectory(run_dir).checkpoints(keep=3).newest()
    assert {"pool", "pool_1"} <= saved.values.keys()
    wait_until(lambda: all(map(is_gone, family)), seconds=10)


def failing_group(failures, cause="learner 1 failed: it was killed"):
    @contextmanager
    def fail(round_, stop):
        if failures:
            failures.pop()
            raise RankError(cause)
        yield

    return fail


@pytest.fixture
def rounds(monkeypatch, make_config, tmp_path):
    """`play_rounds` on a run directory with a checkpoint, without processes."""
    config = make_config(learners=2)
    directory = RunDirectory(config.run_path)
    directory.path.mkdir()
    directory.checkpoints(keep=1).save(Checkpoint({"learner.counters": torch.tensor([40, 2])}, {}), 40, is_best=False)
    monkeypatch.setattr(group, "start_ray", lambda *_: None)
    monkeypatch.setattr(group, "stop_ray", lambda: None)

    def play(failures):
        def play_round(round_, ranks, stop, begin):
            begin(None)
            with failing_group(failures)(round_, stop):
                return round_

        monkeypatch.setattr(group, "learner_group", failing_group([]))
        monkeypatch.setattr(group, "play_round", play_round)
        begun = []
        return group.play_rounds(
            round_module.Round(config, directory.path, Resources(0, 2, 1), None), threading.Event(), begun.append
        ), begun

    return play


def test_learners_that_fail_without_progress_are_given_up(rounds, caplog):
    with caplog.at_level(logging.WARNING), pytest.raises(RankError, match="failed 4 times without a new checkpoint"):
        rounds([None] * 5)
    assert caplog.text.count("all learners start again from frame 40") == 3


def test_a_round_begins_from_the_newest_checkpoint_and_claims_the_directory_once(rounds):
    last, begun = rounds([None] * 2)
    assert int(last.checkpoint.tensors["learner.counters"][0]) == 40
    assert len(begun) == 1


def test_learners_that_cannot_start_are_an_error_at_once(monkeypatch, rounds, make_config, tmp_path):
    monkeypatch.setattr(group, "start_ray", lambda *_: None)
    monkeypatch.setattr(group, "stop_ray", lambda: None)
    monkeypatch.setattr(group, "learner_group", failing_group([None], "learner 1 could not start: no memory"))
    round_ = round_module.Round(make_config(learners=2), tmp_path / "none", Resources(0, 2, 1), None)
    with pytest.raises(RankError, match="could not start: no memory"):
        group.play_rounds(round_, threading.Event(), lambda run: None)


@pytest.mark.parametrize("begun", [False, True])
def test_a_stop_while_learners_start(monkeypatch, rounds, begun):
    """Before the first round it is reported as such; later the run ends with what was saved."""

    @contextmanager
    def stopped(round_, stop):
        raise StopRequested
        yield

    def play_then_fail(round_, ranks, stop, begin):
        begin(None)
        monkeypatch.setattr(group, "learner_group", stopped)
        raise RankError("learner 1 failed")

    last, _ = rounds([])
    monkeypatch.setattr(group, "play_round", play_then_fail)
    monkeypatch.setattr(group, "learner_group", failing_group([]) if begun else stopped)
    with nullcontext() if begun else pytest.raises(StopRequested):
        assert group.play_rounds(last, threading.Event(), lambda run: None) is None


class Nothing:
    """A pool and a learner whose parameters are those given."""

    frame = 0

    def __init__(self, checksum):
        self._checksum = checksum

    def checksum(self):
        return self._checksum

    def health(self):
        return None


def test_parameters_that_differ_stop_the_run(make_config):
    def gather(rank, differing):
        thing = Nothing(rank.rank if differing else 7)
        run = TrainingRun(make_config(learners=2), None, thing, thing, rank)
        reports = run.gather_reports
        if differing and rank.rank == 0:
            with pytest.raises(RunError, match="parameters of the learners differ at frame 0"):
                reports()
        else:
            assert len(reports()) == (2 if rank.rank == 0 else 0)

    for differing in (False, True):
        on_ranks(2, lambda rank, differing=differing: gather(rank, differing))


def test_a_pool_that_fails_on_another_rank_ends_the_run_with_its_cause():
    def fail(rank):
        own = PoolError("actor 3 failed") if rank.rank == 1 else None
        return round_module._failure_of_any(rank, own)

    first, second = on_ranks(2, fail)
    assert str(first) == "learner 1: actor 3 failed"
    assert str(second) == "actor 3 failed"


def test_a_batch_that_cannot_be_shared(make_config):
    with pytest.raises(ConfigError, match="--batch-size 4 cannot be shared by --learners 3"):
        make_config(batch_size=4, learners=3)


def test_more_learners_than_cores_are_warned_of(make_config, monkeypatch, caplog):
    monkeypatch.setattr(group, "available_cores", lambda: 2)
    with caplog.at_level(logging.WARNING):
        group.check_learners(make_config(learners=4))
    assert "--learners 4 is more than the 2 cores" in caplog.text


def test_more_learners_than_gpus(make_config, monkeypatch):
    monkeypatch.setattr(group, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="--learners 2 takes a GPU each; there are 1"):
        group.check_learners(make_config(learners=2))


def test_a_port_that_is_taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(RankError, match=f"learners cannot meet at 127.0.0.1:{port}"):
            listen("127.0.0.1", port)
