"""What the nodes of a Ray cluster offer: free CPUs and GPUs, and whether their software is ours."""

from __future__ import annotations

import platform
import threading
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources

from actors.resources import available_cores
from configs.errors import NodeError, PoolError, StopRequested
from configs.train import TrainConfig

POLL_SECONDS = 1.0
SHARED_PACKAGES = ("torch", "ale-py", "numpy", "gymnasium")
"""Packages in which the machines of a run may not differ."""


@dataclass(frozen=True)
class ClusterResources:
    cpus: int
    """Free CPUs, those of the launching machine included."""
    gpus: int
    nodes: int
    cores_here: int
    """Cores of the launching machine."""

    def describe(self) -> str:
        gpus = f" and {self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else ""
        return f"{self.cpus} free CPU{'' if self.cpus == 1 else 's'}{gpus} on {self.nodes} node{'' if self.nodes == 1 else 's'}"


def free_resources() -> ClusterResources:
    """Of the cluster that this process has joined."""
    free = ray.available_resources()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    here = ray.get_runtime_context().get_node_id()
    offered = sum(node["Resources"].get("CPU", 0) for node in nodes if node["NodeID"] == here)
    cores = available_cores()
    # A node that offers no CPUs still has cores for the learner.
    cpus = int(free.get("CPU", 0)) + (0 if offered else cores)
    return ClusterResources(cpus, int(free.get("GPU", 0)), len(nodes), cores)


def wait_for_cluster(config: TrainConfig, stop: threading.Event, tell: Any) -> ClusterResources:
    """The free resources of the cluster, once they suffice for the learners and actors asked for.

    After `--cluster-timeout` the run makes do with what is free, if that is enough for every learner and an actor of each.
    """
    learners, actors = config.learner.ranks, config.actors.num_actors or 1
    least, wanted = 2 * learners - 1, learners * (1 + actors) - 1  # Ray does not count the launching process.
    deadline = time.monotonic() + config.actors.cluster_timeout
    found, told = free_resources(), False
    if found.cpus < wanted:
        request_resources(num_cpus=wanted)  # Without an autoscaler it has no effect.
    while found.cpus < wanted and time.monotonic() < deadline:
        if not told:
            limit = f"at most {config.actors.cluster_timeout:g} s"
            tell(f"waiting {limit} for {wanted} free CPUs of the cluster; it has {found.describe()}")
            told = True
        if stop.wait(POLL_SECONDS):
            raise StopRequested
        found = free_resources()
    if found.cpus < least:
        raise PoolError(
            f"the cluster at {config.actors.ray_address} has {found.describe()}; {least} are needed:"
            " wait for other jobs to end, add nodes, or raise --cluster-timeout"
        )
    return found


def software() -> dict[str, str]:
    """Versions in which the machines of a run may not differ; Hindcast itself is sent to them."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for package in SHARED_PACKAGES:
        try:
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            found[package] = "none"
    return found


def this_node() -> str:
    """Address of the node that this process runs on."""
    return str(ray.util.get_node_ip_address())


def check_software(expected: dict[str, str]) -> None:
    """Raise NodeError, with the name of this node, if its software differs from `expected`."""
    own = software()
    different = [f"{name} {own[name]} instead of {theirs}" for name, theirs in expected.items() if own[name] != theirs]
    if different:
        raise NodeError(f"node {this_node()} has {', '.join(different)}: install there what the launching machine has")
