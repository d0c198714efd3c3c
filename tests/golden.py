"""Fingerprints of whole training runs: what learns must learn the same numbers after code has been moved about.

`python -m tests.golden` records them for this kind of processor in tests/golden.json; run it with the code that is right.
Names of tensors and metrics do not count, only their values.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch

from agents.tasks import TASKS
from training.storage.run_directory import RunDirectory, provenance

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_name("golden.json")
CASES = [("catch", task) for task in TASKS] + [("pong", "none"), ("pong", "reverse_gvf")]
FRAMES = 20_000
UNSTEADY = ("time/", "memory/", "charts/frames_per_second", "charts/wall_seconds", "meta/seconds")
"""Metrics that differ from run to run, and beginnings of the names of such."""


def processor() -> str:
    """What rounding depends on."""
    return f"{provenance()['machine']['cpu']}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def fingerprint(game: str, task: str) -> dict[str, str]:
    """On one core, for sums are rounded as they are split among threads."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        flags = ["--game", game, "--task", task, "--frames", str(FRAMES), "--seed", "3", "--pool", "serial"]
        flags += ["--eval-episodes", "2", "--run-dir", str(run), "--learners", "1"]
        if task in ("gvf", "reverse_gvf"):
            flags += ["--meta-learning-rate", "1e-4", "--meta-clip-norm", "0"]  # Defaults when the first hashes were recorded.
        command = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0))), sys.executable, str(ROOT / "launch.py"), "train"]
        subprocess.run([*command, *flags], check=True, capture_output=True, timeout=1200)
        return {"weights": _weights(run), "metrics": _metrics(run)}


def _weights(run: Path) -> str:
    """Of the agent, its task, the question network and the optimisers."""
    tensors = RunDirectory(run).checkpoints(keep=1).newest().tensors
    learnt = [
        t for name, t in tensors.items() if name.startswith("learner.") and "window" not in name and t.is_floating_point()
    ]
    return _of_all(tensor.numpy().tobytes() for tensor in learnt)


def _metrics(run: Path) -> str:
    """Of every curve that is the same in every run, and of the score of the games after training."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steady = sorted({name for line in lines for name in line if not name.startswith(UNSTEADY)})
    curves = [json.dumps([line.get(name) for line in lines]).encode() for name in steady]
    score = json.loads((run / "result.json").read_text())["evaluation"]["mean"]
    return _of_all([*curves, json.dumps(score).encode()])


def _of_all(parts: Iterable[bytes]) -> str:
    """In whatever order."""
    digests = sorted(hashlib.sha256(part).hexdigest() for part in parts)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """By processor and case."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def main() -> None:
    found = {}
    for game, task in CASES:
        found[f"{game} {task}"] = fingerprint(game, task)
        print(game, task, found[f"{game} {task}"], flush=True)
    FILE.write_text(json.dumps(recorded() | {processor(): found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
