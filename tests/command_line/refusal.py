"""Helpers for tests of commands that are refused."""

import pytest
import torch

import launch

NO_GPU = pytest.param(
    ["--device", "cuda"],
    "torch finds no CUDA device",
    marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
)


def refusal(capsys, *arguments):
    """Run a command that must be refused; return its error message, which is one line."""
    assert launch.main(list(map(str, arguments))) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines(keepends=True)
    if lines[0].startswith(("starting", "joining Ray")):
        del lines[0]
    assert len(lines) == 1
    assert lines[0].startswith("launch.py: ")
    return lines[0]


def snapshot(directory):
    """The content of all files below a directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
