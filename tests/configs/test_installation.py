"""What is recorded of the code, and what is sent to a cluster's workers, from a checkout and from an installation."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from actors import cluster
from configs import installation
from configs.errors import PoolError
from tests.helpers.running import PACKAGES, ROOT
from training.storage.run_directory import provenance

ASK = """
import json
from actors.cluster import code_runtime_env
from training.storage.run_directory import provenance
print(json.dumps([provenance(), code_runtime_env()]))
"""
SHIP = """
import functools
import ray
from actors.cluster import code_runtime_env, start_ray, stop_ray

ray.init = functools.partial(ray.init, runtime_env=code_runtime_env())  # As for a cluster, but to a local Ray.
start_ray("", 1)

@ray.remote
def find():
    import envs.atari, studies
    return envs.atari.__file__, len(envs.atari.published_scores())

print(*ray.get(find.remote()))
stop_ray()
"""
PLUG_IN = """
import functools
import sys
import ray
from actors.cluster import code_runtime_env, start_ray, stop_ray
from agents.torsos import make_torso

make_torso("beside:torso", (1, 4, 4)), make_torso("within.torsos:torso", (1, 4, 4))
code = code_runtime_env() | {"env_vars": {}}  # The workers' machine has no such directory.
sys.path.remove(sys.argv[1])
ray.init = functools.partial(ray.init, runtime_env=code)
start_ray("", 1)

@ray.remote
def find():
    import beside, within.torsos
    return beside.__file__, within.torsos.__file__

print(*ray.get(find.remote()))
stop_ray()
"""

LOCAL = """
import ray
from actors.cluster import start_ray, stop_ray

start_ray("", 1)

@ray.remote
def find():
    import agents.agent, beside
    return agents.agent.__file__

print(ray.get(find.remote()))
stop_ray()
"""


def git(directory, *arguments):
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit_all(directory):
    git(directory, "init", "--quiet")
    git(directory, "add", "--all", "--force")
    git(directory, "commit", "--quiet", "--message", "all")
    return git(directory, "rev-parse", "HEAD")


def copy_code(directory):
    for name in PACKAGES:
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "launch.py", directory)


@pytest.fixture
def installed(tmp_path):
    """Hindcast in the site-packages of a repository that is not Hindcast's, with another package beside it."""
    site = tmp_path / "project" / ".venv" / "site-packages"
    copy_code(site)
    info = site / "hindcast-7.8.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hindcast\nVersion: 7.8.9\n")
    (info / "top_level.txt").write_text("\n".join([*PACKAGES, "launch", ""]))
    (site / "heavy").mkdir()
    (site / "heavy" / "__init__.py").touch()
    (tmp_path / "project" / "pyproject.toml").write_text('[project]\nname = "other"\nversion = "1.0"\n')
    commit_all(tmp_path / "project")
    return site


def run_with(code, directory, cwd):
    """What a program prints that imports Hindcast from the directory."""
    environment = os.environ | {"PYTHONPATH": str(directory)}
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installation_records_its_version_and_sends_its_own_packages(installed, tmp_path):
    origin, code = json.loads(run_with(ASK, installed, tmp_path))
    assert origin["commit"] is None
    assert origin["versions"]["hindcast"] == "7.8.9"
    assert code["py_modules"] == [str(installed / name) for name in PACKAGES]
    assert str(installed) in code["env_vars"]["PYTHONPATH"].split(os.pathsep)


def test_workers_import_what_an_installation_sends(installed, tmp_path):
    path, games = run_with(SHIP, installed, tmp_path).split()
    assert not path.startswith(str(installed))
    assert path.endswith("envs/atari.py")
    assert games == "57"


def test_workers_of_a_local_ray_import_what_the_program_would(installed, tmp_path):
    """Not what lies in the current directory under the name of one of our packages, but what lies beside the program."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/program.py").write_text(LOCAL)
    (tmp_path / "bin/beside.py").touch()
    (tmp_path / "here/agents").mkdir(parents=True)
    (tmp_path / "here/agents/__init__.py").write_text("raise RuntimeError('the agents of somebody else')")
    command = [sys.executable, tmp_path / "bin/program.py"]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path / "here", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(installed / "agents/agent.py")


def test_a_checkout_records_its_commit_and_is_sent_whole(tmp_path):
    checkout = tmp_path / "repository" / "hindcast"
    checkout.mkdir(parents=True)
    copy_code(checkout)
    shutil.copy(ROOT / "pyproject.toml", checkout)
    commit_all(tmp_path / "repository")
    origin, code = json.loads(run_with(ASK, checkout, tmp_path))
    assert origin["commit"] is None  # The surrounding repository's is not Hindcast's.
    assert code["working_dir"] == str(checkout)
    commit = commit_all(checkout)
    assert json.loads(run_with(ASK, checkout, tmp_path))[0]["commit"] == commit


def test_plug_ins_reach_machines_that_do_not_have_them(tmp_path):
    """As a module and as a package."""
    torso = (
        "import torch\n\n\ndef torso(shape):\n    layer = torch.nn.Flatten()\n    layer.num_features = 16\n    return layer\n"
    )
    outside = tmp_path / "outside"
    (outside / "within").mkdir(parents=True)
    (outside / "beside.py").write_text(torso)
    (outside / "within" / "__init__.py").write_text("")
    (outside / "within" / "torsos.py").write_text(torso)
    script = f"import sys; sys.path.insert(0, {str(outside)!r}); sys.argv = ['', {str(outside)!r}]\n{PLUG_IN}"
    files = run_with(script, ROOT, tmp_path).split()
    assert [file.rpartition("/")[2] for file in files] == ["beside.py", "torsos.py"]
    assert not any(file.startswith(str(outside)) for file in files)


def test_the_version_here_is_the_checkouts_own():
    assert f'\nversion = "{provenance()["versions"]["hindcast"]}"\n' in (ROOT / "pyproject.toml").read_text()


def test_code_that_is_nowhere_known_is_not_sent(tmp_path, monkeypatch):
    """Not even what lies beside it."""
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    monkeypatch.setattr(installation, "_project", dict)
    with pytest.raises(PoolError, match="install Hindcast with pip"):
        cluster.code_runtime_env()
