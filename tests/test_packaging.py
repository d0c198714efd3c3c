"""What `make setup` chooses and what the package asks for."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import launch
from tests.helpers.running import PACKAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().split())


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def make(directory, *arguments, **environment):
    """What `make` says and does where the only programs are those in `directory` and the shell's."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        if not (directory / name).exists():
            shutil.copy(ROOT / name, directory)
    command = [shutil.which("make"), "--silent", *arguments]
    environment = {"PATH": f"{directory}/bin:/tools", "SHELL": "/bin/sh", "HOME": str(directory), **environment}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)


def interpreter(directory, name, supported=True):
    """A program that answers as a Python would; the virtual environments it makes note what is installed into them."""
    path = directory / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
case "$1 $2" in
"-c import ensurepip"*) exit {0 if supported else 1};;
"-c import platform"*) echo {name.removeprefix("python")}.7;;
"-m venv") /bin/mkdir -p $3/bin; /bin/cp "$0" $3/bin/python;;
"-m pip") echo "$@" >> installed;;
esac
"""
    )
    path.chmod(0o755)
    touch = directory / "bin" / "touch"
    touch.write_text('#!/bin/sh\nexec /bin/touch "$@"\n')
    touch.chmod(0o755)


def test_the_first_supported_interpreter_is_taken_and_named(tmp_path):
    interpreter(tmp_path, "python3.11", supported=False)
    interpreter(tmp_path, "python3.12")
    interpreter(tmp_path, "python3.13")
    done = make(tmp_path, "setup")
    assert (done.returncode, done.stdout) == (0, "setting up .venv with python3.12 (Python 3.12.7)\n"), done.stderr
    installed = (tmp_path / "installed").read_text().splitlines()
    assert [line.split("requirements.lock ")[1] for line in installed] == [
        "torch==2.13.0",
        "--editable .[dev,reacher,streams]",
    ]
    assert make(tmp_path, "setup").stdout == ""


def test_an_interpreter_can_be_named_and_is_not_ignored_later(tmp_path):
    interpreter(tmp_path, "python3.11")
    interpreter(tmp_path, "python3.13")
    assert "with python3.13 (Python 3.13.7)" in make(tmp_path, "setup", "PYTHON=python3.13").stdout
    assert make(tmp_path, "setup", PYTHON="python3.13").returncode == 0
    done = make(tmp_path, "setup", "PYTHON=python3.11")
    assert done.returncode == 2
    assert done.stderr.startswith(".venv has Python 3.13.7, not python3.11: make clean first, or choose another VENV=DIR\n")


def test_an_interpreter_of_pyenv_is_found_where_its_shim_is_not_active(tmp_path):
    interpreter(tmp_path, "python3.13", supported=False)  # The shim: it knows no active version of that name.
    installed = tmp_path / ".pyenv" / "versions" / "3.13.7"
    installed.mkdir(parents=True)
    interpreter(installed, "python3.13")
    done = make(tmp_path, "setup", "PYTHON=python3.13")
    assert (done.returncode, done.stdout.split()[4]) == (0, str(installed / "bin" / "python3.13")), done.stderr
    assert make(tmp_path, "setup", "PYTHON=python3.13").returncode == 0


@pytest.mark.parametrize("named", [(), ("PYTHON=python3.10",)])
def test_without_a_supported_interpreter_one_line_says_what_is_missing(tmp_path, named):
    interpreter(tmp_path, "python3.10", supported=False)
    done = make(tmp_path, "setup", *named)
    assert done.returncode == 2
    line, *rest = done.stderr.splitlines()
    assert line.startswith("Python 3.11, 3.12 or 3.13 with venv is needed, and none of these is one: python3.1")
    assert all(line.startswith("make: ***") for line in rest)
    assert not (tmp_path / ".venv").exists()


def test_the_real_interpreter_is_accepted(tmp_path):
    check = re.search(r"^SUPPORTED = (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[1]
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
    low, high = (tuple(map(int, pair.split(", "))) for pair in re.findall(r"\((3, \d+)\)", check))
    supported = SpecifierSet(PROJECT["project"]["requires-python"])
    assert [minor for minor in range(30) if f"3.{minor}" in supported] == list(range(low[1], high[1]))
    tested = re.findall(r'"(3\.\d+)"', (ROOT / ".github/workflows/ci.yml").read_text())
    assert tested == [f"3.{minor}" for minor in range(low[1], high[1])]


def test_the_lock_file_is_within_every_range():
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *(text for extra in extras.values() for text in extra)]
    locked = {normalised(name): version for name, version in LOCK.items()}
    for requirement in map(Requirement, wanted):
        if requirement.name == "torch":
            assert str(requirement.specifier) == "==2.13.0"
        else:
            assert locked[normalised(requirement.name)] in requirement.specifier, requirement


def test_every_package_is_installed():
    found = {
        ".".join(path.parent.relative_to(ROOT).parts) for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")
    }
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])
    assert PROJECT["project"]["scripts"] == {"hindcast": f"{launch.__name__}:main"}
    assert callable(launch.main)


@pytest.mark.parametrize("name", ["hindcast", "launch.py"])
def test_messages_begin_with_the_name_of_the_command(capsys, monkeypatch, name):
    monkeypatch.setattr(sys, "argv", [os.path.join("somewhere", name)])
    assert launch.main(["fly"]) == 2
    assert capsys.readouterr().err.startswith(f"{name}: unknown command 'fly'")
    assert launch.main([]) == 2
    assert capsys.readouterr().out.startswith(f"usage: {name} COMMAND")
