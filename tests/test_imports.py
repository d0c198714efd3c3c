"""Imports point one way, and Ray is imported only where docs/architecture.md says so."""

import ast
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "configs": set(),
    "envs": {"configs"},
    "agents": {"configs", "envs"},
    "learners": {"configs", "envs", "agents"},
    "actors": {"configs", "envs", "agents"},
    "training": {"configs", "envs", "agents", "learners", "actors"},
    "retrospective": set(),
    "studies": {"configs", "envs", "agents", "learners", "actors", "training", "retrospective"},
    "launch": {"configs", "envs", "agents", "learners", "actors", "training", "retrospective", "studies"},
}
"""By package, the other packages of ours that it may import."""
RAY_FILES = {
    "actors/cluster.py",
    "actors/nodes.py",
    "actors/ray_pool.py",
    "learners/rank_processes.py",
    "studies/benchmark/data_plane.py",
    "studies/compare/scheduler.py",
    "studies/reproduce/experiment.py",
}
"""The only files that import Ray."""


def imported(tree):
    """Dotted names of the modules that a syntax tree imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(path, text):
    """What a file of ours, named from the root of the repository, may not import but does."""
    package = path.split("/")[0].removesuffix(".py")
    tree = ast.parse(text)
    found = []
    for name in imported(tree):
        first = name.split(".")[0]
        if first in MAY_IMPORT and first != package and first not in MAY_IMPORT[package]:
            found.append(f"{path} imports {name}: {package} may not import {first}")
        if first == "ray" and path not in RAY_FILES:
            found.append(f"{path} imports {name}: Ray belongs to {', '.join(sorted(RAY_FILES))}")
    return found


def sources():
    paths = [path for package in MAY_IMPORT for path in sorted((ROOT / package).rglob("*.py"))] + [ROOT / "launch.py"]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def test_imports_point_one_way():
    files = sources()
    assert len(files) > 50
    assert [problem for path, text in files.items() for problem in violations(path, text)] == []


def test_every_package_has_its_place():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests"} == MAY_IMPORT.keys() - {"launch"}


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("envs/atari.py", "from agents.agent import Agent", "envs may not import agents"),
        ("learners/losses.py", "import actors.pool", "learners may not import actors"),
        ("actors/pool.py", "def f():\n    from learners.learner import Learner", "actors may not import learners"),
        ("retrospective/anomaly.py", "from configs import errors", "retrospective may not import configs"),
        ("configs/train.py", "from envs import registry", "configs may not import envs"),
        ("training/loop.py", "import ray", "Ray belongs to"),
        ("learners/learner.py", "from ray.util import queue", "Ray belongs to"),
    ],
)
def test_a_forbidden_import_is_found(path, text, complaint):
    problems = violations(path, textwrap.dedent(text))
    assert problems
    assert all(complaint in problem for problem in problems)
