"""Training and sweeps across three hosts, some of which fail."""

import json
import signal
import subprocess
import tempfile
import time

import pytest

from tests.helpers.hosts import Hosts, unavailable
from tests.helpers.running import count_lines, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

TOKEN = "0123456789abcdef" * 4
LIMIT = 300
"""Seconds for what is expected to happen, on a busy machine."""
FRAMES = 40_000
TRAIN = ["train", "--game", "catch", "--torso", "shallow", "--batch-size", 8, "--unroll", 10, "--log-frames", 1000,
         "--eval-episodes", 0, "--checkpoint-minutes", 0.05, "--actor-timeout", 20]  # fmt: skip


@pytest.fixture
def hosts():
    # pytest's own directories are too deep for the sockets that Ray puts there.
    with tempfile.TemporaryDirectory(prefix="hosts") as directory, Hosts(3, directory, TOKEN) as made:
        yield made
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(name in namespaces for name in made.names)


def start_cluster(hosts, *cpus):
    """Ray nodes with the given CPUs on the first hosts, all of which have joined."""
    for host, number in enumerate(cpus):
        hosts.join(host, number, resources=json.dumps({f"host{host}": 9}))


def lines(hosts, log="driver.log"):
    return (hosts.directory / log).read_text()


def train(hosts, host, *flags, log="driver.log"):
    flags = [*flags, "--run-dir", hosts.directory / "run", "--ray-address", hosts.ray_address]
    return hosts.launch(host, *flags, log=log)


def wait_for_metrics(hosts, process, number=3, log="driver.log"):
    path = hosts.directory / "run" / "metrics.jsonl"
    wait_until(lambda: process.poll() is not None or count_lines(path) >= number, LIMIT)
    assert process.poll() is None, lines(hosts, log)


def assert_finished(hosts, process, frames=FRAMES, log="driver.log"):
    assert process.wait(LIMIT) == 0, lines(hosts, log)
    result = json.loads((hosts.directory / "run" / "result.json").read_text())
    assert frames <= result["frames"] < frames + 8 * 10
    curve = [json.loads(line)["frame"] for line in (hosts.directory / "run" / "metrics.jsonl").read_text().splitlines()]
    assert curve == sorted(set(curve))
    assert curve[-1] == result["frames"]
    assert "Traceback" not in lines(hosts, log)
    assert "[W" not in lines(hosts, log)
    assert len(lines(hosts, log).splitlines()) < 60


def actors_on(hosts, host):
    return hosts.count(host, "RolloutActor")


def train_on_three(hosts):
    """A run that has begun, with an actor on each of three hosts."""
    start_cluster(hosts, 1, 1, 1)
    process = train(hosts, 0, *TRAIN, "--frames", 3 * FRAMES, "--learners", 1, "--num-actors", 3)
    wait_until(lambda: process.poll() is not None or actors_on(hosts, 2), LIMIT)
    wait_for_metrics(hosts, process)
    return process


def test_learners_and_actors_on_three_hosts(hosts):
    start_cluster(hosts, 2, 2, 2)
    process = train(hosts, 0, *TRAIN, "--frames", FRAMES, "--learners", 2, "--num-actors", 2, "--learner-resource", "host1")
    wait_for_metrics(hosts, process)
    assert [hosts.count(host, "RankProcess") for host in range(3)] == [0, 1, 0]
    assert sum(actors_on(hosts, host) for host in range(3)) == 4
    assert actors_on(hosts, 2) == 2
    assert_finished(hosts, process)
    assert "the cluster has 6 free CPUs on 3 nodes" in lines(hosts)


def test_the_automatic_layout_uses_the_cluster(hosts):
    start_cluster(hosts, 1, 2, 1)
    process = train(hosts, 0, *TRAIN, "--frames", FRAMES, "--learners", 1, "--learner-threads", 1)
    assert_finished(hosts, process)
    assert "layout: 1 learner x (1 core, 3 actors with" in lines(hosts)


def test_a_host_that_is_killed_is_absorbed(hosts):
    process = train_on_three(hosts)
    hosts.kill(2)
    assert_finished(hosts, process, 3 * FRAMES)
    assert "failed and is replaced" in lines(hosts)


def test_a_link_that_is_down_for_a_while_is_absorbed(hosts):
    process = train_on_three(hosts)
    hosts.link(2, up=False)
    time.sleep(20)
    hosts.link(2, up=True)
    assert_finished(hosts, process, 3 * FRAMES)


def test_a_host_that_joins_late_is_used(hosts):
    start_cluster(hosts, 1, 1)
    process = train(hosts, 0, *TRAIN, "--frames", 10**9, "--learners", 1, "--num-actors", 3, "--cluster-timeout", 1)
    wait_for_metrics(hosts, process)
    assert [actors_on(hosts, host) for host in range(3)] == [1, 1, 0]
    hosts.ray(2, 1)
    wait_until(lambda: process.poll() is not None or actors_on(hosts, 2), LIMIT)
    assert actors_on(hosts, 2) == 1
    before = count_lines(hosts.directory / "run" / "metrics.jsonl")
    wait_for_metrics(hosts, process, before + 3)
    for child in hosts.processes(0):
        if "launch.py" in " ".join(child.cmdline()):
            child.terminate()
    assert process.wait(LIMIT) == 128 + signal.SIGTERM
    wait_until(lambda: not any(actors_on(hosts, host) for host in range(3)), 30)


def test_a_run_continues_on_another_host_when_its_own_is_killed(hosts):
    start_cluster(hosts, 1, 1, 1)
    process = train(hosts, 1, *TRAIN, "--frames", 3 * FRAMES, "--learners", 1, "--num-actors", 2)
    wait_for_metrics(hosts, process, 10)
    hosts.kill(1)
    assert process.wait(LIMIT) != 0
    resumed = train(hosts, 2, "train", "--resume", log="resumed.log")
    assert_finished(hosts, resumed, 3 * FRAMES, "resumed.log")


def test_a_sweep_survives_the_loss_of_a_host(hosts):
    start_cluster(hosts, 1, 1, 1)
    out = hosts.directory / "sweep"
    flags = ["compare", "--games", "catch", "--tasks", "none", "--seeds", 5, "--frames", 2 * FRAMES, "--torso", "shallow",
             "--batch-size", 8, "--unroll", 10, "--eval-episodes", 1, "--checkpoint-minutes", 0.05, "--out", out,
             "--ray-address", hosts.ray_address]  # fmt: skip
    process = hosts.launch(0, *flags)
    wait_until(lambda: process.poll() is not None or hosts.count(2, "TrialProcess"), LIMIT)
    wait_until(lambda: process.poll() is not None or len(list(out.glob("*/metrics.jsonl"))) >= 3, LIMIT)
    hosts.kill(2)
    assert process.wait(2 * LIMIT) == 0, lines(hosts)
    results = [json.loads(path.read_text())["frames"] for path in out.glob("*/result.json")]
    assert len(results) == 5
    assert all(2 * FRAMES <= frames < 2 * FRAMES + 80 for frames in results)
