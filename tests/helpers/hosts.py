"""Hosts of a cluster on one machine: network namespaces with addresses of their own, joined by a bridge.

The bridge lives in a namespace too, so nothing of it can be reached from outside.

As a program it runs a command on the first of some hosts, each with a Ray node:
python -m tests.helpers.hosts 3 python launch.py train --game pong --ray-address 10.77.0.1:6379
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.helpers.running import wait_until

ROOT = Path(__file__).parent.parent.parent
RAY = Path(sys.executable).with_name("ray")
PORT = 6379
START_SECONDS = 300
"""For a Ray node, on a busy machine."""


def unavailable():
    """Why hosts cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command `ip` is missing"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        return "network namespaces are not allowed here"
    return ""


def ip(*arguments, host=None):
    inside = ["-netns", host] if host else []
    return subprocess.run(["ip", *inside, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


class Hosts:
    """Context with `number` hosts, each a namespace; `ray` starts a Ray node on a host, `start` any command."""

    def __init__(self, number, directory, token=None):
        self._prefix = f"hc{os.getpid()}"
        self.names = [f"{self._prefix}h{i}" for i in range(number)]
        self._switch = f"{self._prefix}sw"
        self.directory = Path(directory)
        self._token = token
        self._processes = []

    def address(self, host):
        return f"10.77.0.{host + 1}"

    @property
    def ray_address(self):
        return f"{self.address(0)}:{PORT}"

    def __enter__(self):
        ip("netns", "add", self._switch)
        ip("link", "add", "br0", "type", "bridge", host=self._switch)
        ip("link", "set", "br0", "up", host=self._switch)
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", self._switch)
            ip("link", "set", f"port{i}", "master", "br0", "up", host=self._switch)
            ip("link", "set", "lo", "up", host=name)
            ip("address", "add", f"{self.address(i)}/24", "dev", "eth0", host=name)
            ip("link", "set", "eth0", "up", host=name)
        return self

    def __exit__(self, *_):
        for host in range(len(self.names)):
            self.kill(host)
        for process in self._processes:
            process.wait(10)
        for name in (*self.names, self._switch):
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def start(self, host, *command, env=None, **options):
        """Start a command on a host."""
        environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"} | (env or {})
        if self._token is not None:
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[host], *map(str, command)], cwd=ROOT, env=environment, text=True, **options
        )
        self._processes.append(process)
        return process

    def ray(self, host, cpus, resources="{}"):
        """Start a Ray node on a host and return its process; host 0 has the head."""
        own = self.directory / f"node{host}"
        own.mkdir(exist_ok=True)
        head = ["--head", f"--port={PORT}", f"--temp-dir={self.directory}/ray", "--include-dashboard=false"]
        place = [f"--address={self.ray_address}"] if host else head
        command = [RAY, "start", *place, f"--node-ip-address={self.address(host)}", f"--num-cpus={cpus}", "--block",
                   f"--object-store-memory={200 * 2**20}", f"--resources={resources}", "--disable-usage-stats"]  # fmt: skip
        log = (own / "log").open("a")
        return self.start(host, *command, stdout=log, stderr=subprocess.STDOUT)

    def has_node(self, host):
        """Whether the Ray node of a host has started."""
        return "Ray runtime started" in self._log(host)

    def _log(self, host):
        return (self.directory / f"node{host}" / "log").read_text()

    def join(self, host, cpus, resources="{}"):
        """Start a Ray node on a host and wait until it belongs to the cluster."""
        node = self.ray(host, cpus, resources)
        wait_until(lambda: self.has_node(host) or node.poll() is not None, START_SECONDS)
        assert self.has_node(host), self._log(host)

    def launch(self, host, *arguments, log="driver.log", env=None):
        """Start `launch.py` on a host; its output goes to a file."""
        output = (self.directory / log).open("a")
        command = [sys.executable, ROOT / "launch.py", *arguments]
        return self.start(host, *command, stdout=output, stderr=subprocess.STDOUT, env=env)

    def processes(self, host):
        """Processes of a host."""
        pids = ip("netns", "pids", self.names[host]).split()
        return [psutil.Process(int(pid)) for pid in pids if psutil.pid_exists(int(pid))]

    def kill(self, host):
        """Kill every process of a host at once, as a power failure does."""
        deadline = time.monotonic() + 20
        while (found := self.processes(host)) and time.monotonic() < deadline:
            for process in found:
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    continue
            for process in self._processes:
                process.poll()  # Not psutil, which would take the exit code away.
            time.sleep(0.1)
        assert not self.processes(host)

    def link(self, host, up):
        """Plug or unplug the network of a host."""
        ip("link", "set", "eth0", "up" if up else "down", host=self.names[host])

    def count(self, host, what):
        """Processes of a host whose command line contains `what`."""
        found = 0
        for process in self.processes(host):
            try:
                found += what in " ".join(process.cmdline())
            except psutil.Error:
                continue
        return found


def main(number, *command):
    """Run a command on the first of `number` hosts, each with a Ray node of one CPU; returns its exit code."""
    with tempfile.TemporaryDirectory() as directory, Hosts(int(number), directory, secrets.token_hex(32)) as hosts:
        for host in range(int(number)):
            hosts.join(host, cpus=1)
        return hosts.start(0, *command).wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
