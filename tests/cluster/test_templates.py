"""The templates of examples/cluster parse, and the commands in them exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.test_docs import unknown_flags

TEMPLATES = Path(__file__).parents[2] / "examples" / "cluster"


def test_the_ray_cluster_starts_nodes_with_a_token():
    cluster = yaml.safe_load((TEMPLATES / "ray-cluster.yaml").read_text())
    assert cluster["max_workers"] == len(cluster["provider"]["worker_ips"])
    for commands in (cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]):
        assert any("ray start" in command and "RAY_AUTH_MODE=token" in command for command in commands)


def test_the_kuberay_manifest_describes_a_job():
    job = yaml.safe_load((TEMPLATES / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    groups = [job["spec"]["rayClusterSpec"]["headGroupSpec"], *job["spec"]["rayClusterSpec"]["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert {variable["name"] for variable in container["env"]} == {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
    assert_known_flags(job["spec"]["entrypoint"])


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_slurm_script_parses():
    script = TEMPLATES / "slurm.sh"
    subprocess.run(["bash", "-n", script], check=True)
    assert_known_flags(" ".join(re.findall(r"hindcast train[^)\n]*", script.read_text())))


def assert_known_flags(command):
    assert "--run-dir" in command
    flags = re.sub(r"\$\{?\w+\}?|\$\(\w+\)", "X", command)
    assert unknown_flags(f"```\n{flags.replace('hindcast', 'python launch.py')}\n```") == []
