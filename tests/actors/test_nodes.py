"""Resources and software of a cluster's nodes."""

import threading

import pytest

from actors import nodes
from actors.nodes import ClusterResources, check_software, software, wait_for_cluster
from configs.errors import NodeError, PoolError, StopRequested


@pytest.fixture
def cluster(monkeypatch):
    """A cluster whose free CPUs are those of a list, one after the other; requests to its autoscaler are recorded."""

    def make(*cpus):
        free, requests = list(cpus), []
        monkeypatch.setattr(nodes, "POLL_SECONDS", 0.0)
        monkeypatch.setattr(
            nodes, "free_resources", lambda: ClusterResources(free.pop(0) if len(free) > 1 else free[0], 0, 2, 4)
        )
        monkeypatch.setattr(nodes, "request_resources", lambda num_cpus: requests.append(num_cpus))
        return requests

    return make


def on_cluster(make_config, **options):
    return make_config(pool="ray", ray_address="10.0.0.1:6379", **{"cluster_timeout": 0.2} | options)


def test_free_cpus_are_used_at_once(cluster, make_config, never):
    requests = cluster(9)
    assert wait_for_cluster(on_cluster(make_config, num_actors=9), never, pytest.fail).cpus == 9
    assert requests == []


def test_promised_cpus_are_requested_and_waited_for(cluster, make_config, never):
    requests, lines = cluster(1, 1, 5), []
    found = wait_for_cluster(on_cluster(make_config, num_actors=2, learners=2, cluster_timeout=60.0), never, lines.append)
    assert (found.cpus, requests) == (5, [5])
    assert lines == ["waiting at most 60 s for 5 free CPUs of the cluster; it has 1 free CPU on 2 nodes"]


def test_after_the_limit_fewer_actors_will_do(cluster, make_config, never):
    cluster(3)
    assert wait_for_cluster(on_cluster(make_config, num_actors=50), never, lambda line: None).cpus == 3


def test_without_a_free_cpu_the_run_is_given_up_after_the_limit(cluster, make_config, never):
    cluster(0)
    with pytest.raises(PoolError, match=r"10.0.0.1:6379 has 0 free CPUs on 2 nodes; 1 are needed: .* --cluster-timeout"):
        wait_for_cluster(on_cluster(make_config), never, lambda line: None)


def test_a_stop_request_ends_the_wait(cluster, make_config):
    cluster(0)
    stop = threading.Event()
    stop.set()
    with pytest.raises(StopRequested):
        wait_for_cluster(on_cluster(make_config, cluster_timeout=60.0), stop, lambda line: None)


def test_a_node_with_other_versions_is_named(monkeypatch):
    ours = software()
    assert {"Python", "torch", "ale-py", "numpy"} <= ours.keys()
    check_software(ours)
    monkeypatch.setattr(nodes.ray.util, "get_node_ip_address", lambda: "10.0.0.7")
    with pytest.raises(
        NodeError, match=r"^node 10.0.0.7 has torch [\d.]+ instead of 1.0, numpy [\d.]+ instead of 0.9: install"
    ):
        check_software(ours | {"torch": "1.0", "numpy": "0.9"})
