"""Ray's output goes to a log; the token of a local Ray is private."""

import os
import stat
import subprocess
import sys

import pytest

from actors import cluster, ray_log
from tests.helpers.running import ROOT

SCRIPT = """
import logging, os, sys
from pathlib import Path
from actors import ray_log
if "separate" in sys.argv:
    ray_log.separate_stderr()
logging.basicConfig(format="%(message)s")
ray_log.capture()
os.write(2, b"early flood\\n")
print("our line", file=sys.stderr)
assert "early flood" in ray_log.text() or "separate" not in sys.argv
ray_log.keep(Path(sys.argv[1]))
os.write(2, b"late flood\\n")
logging.getLogger("ray.worker").error("a node is lost")
logging.getLogger("actors").warning("our warning")
ray_log.write("(raylet) state dump")
ray_log.release()
os.write(2, b"after the run\\n")
"""


def run_script(directory, *arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, str(directory), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, **options)


def test_native_output_and_rays_messages_go_to_the_log(tmp_path):
    done = run_script(tmp_path, "separate")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["our line", "our warning", "after the run"]
    early, late, lost, dump = (tmp_path / "ray.log").read_text().splitlines()
    assert (early, late, dump) == ("early flood", "late flood", "(raylet) state dump")
    assert lost.endswith("a node is lost")


def test_a_program_whose_stderr_is_not_separate_keeps_it(tmp_path):
    done = run_script(tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"our line", "early flood", "late flood"} <= set(done.stderr.splitlines())
    assert (tmp_path / "ray.log").read_text().endswith("(raylet) state dump\n")


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_a_planted_log_is_neither_followed_nor_waited_for(tmp_path, planted):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    if planted == "link":
        (tmp_path / "ray.log").symlink_to(victim)
    else:
        os.mkfifo(tmp_path / "ray.log")
    done = run_script(tmp_path, "separate")
    assert done.returncode == 0, done.stderr
    assert "flood" not in done.stderr
    assert victim.read_text() == "untouched"


def test_an_empty_log_leaves_no_file(tmp_path):
    ray_log.capture()
    ray_log.keep(tmp_path)
    assert (tmp_path / "ray.log").exists()
    ray_log.release()
    assert not (tmp_path / "ray.log").exists()


@pytest.fixture
def token(tmp_path, monkeypatch):
    path = tmp_path / ".ray" / "auth_token"
    monkeypatch.setattr(cluster, "TOKEN", path)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return path


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_token_is_readable_by_its_owner_alone(token):
    cluster.keep_token_private()
    assert mode(token) == 0o600
    assert len(token.read_text()) == 64
    assert list(token.parent.iterdir()) == [token]


def test_a_token_that_others_could_read_is_closed_to_them_and_kept(token):
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    cluster.keep_token_private()
    assert mode(token) == 0o600
    assert token.read_text() == "secret"


@pytest.mark.parametrize(
    ("name", "value"), [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "x"), ("RAY_AUTH_TOKEN_PATH", "/x")]
)
def test_no_token_is_made_where_ray_would_make_none(token, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    cluster.keep_token_private()
    assert not token.exists()


def test_nodes_that_leave_and_join_are_one_line_each(monkeypatch):
    nodes = {}
    monkeypatch.setattr(cluster.ray, "nodes", lambda: list(nodes.values()))
    monkeypatch.setattr(cluster, "NODE_SECONDS", 0.0)

    def put(name, alive):
        nodes[name] = {"NodeID": name, "NodeManagerHostname": name, "NodeManagerAddress": "10.0.0.1", "Alive": alive}

    put("a", True), put("b", True)
    watch = cluster.NodeWatch()
    assert watch.changes() == []
    put("b", False), put("c", True)
    assert watch.changes() == ["node b (10.0.0.1) has left the cluster", "node c (10.0.0.1) has joined the cluster"]
    assert watch.changes() == []
    monkeypatch.setattr(cluster, "NODE_SECONDS", 60.0)
    put("a", False)
    assert watch.changes() == []
