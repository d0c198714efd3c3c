"""Soak test: trains in a separate process, samples its memory, and reports leaks.

    python -m studies.benchmark.soak --frames 3_000_000 --task reverse_gvf --out results/soak/reverse_gvf

writes OUT.json and OUT.png. Sampled are the resident memory of the learner (of all ranks together), of all actors, of Ray's
servers and of the object store (the allocated pages of its file in shared memory), and the file descriptors and threads of
learner and actors. A run without actors or without Ray has zeros there. After a
warm-up, the last quarter of the samples is compared with the first. The mean of a memory may not rise by 2% or more; a fall
is reported but is no leak. The median of a count, which is robust against briefly opened files, may not change at all.
Further flags are those of `launch.py train`; with --run-dir the run is kept.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import psutil

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 0.2
"""Share of the samples that is left out."""
LIMIT = 0.02
"""Largest relative rise of a memory."""
MEMORY = ("learner_mb", "actors_mb", "servers_mb", "object_store_mb")
COUNTS = ("learner_fds", "learner_threads", "actors_fds", "actors_threads")
MEGABYTE = 2**20


def sample(learner: psutil.Process) -> dict[str, float]:
    """One sample of the run; raises psutil.Error or OSError if a process ends meanwhile."""
    children = learner.children(recursive=True)
    names = {process: " ".join(process.cmdline()) for process in children}
    actors = [process for process in children if "RolloutActor" in names[process]]
    ranks = [learner, *(process for process in children if "RankProcess" in names[process])]
    raylets = [process for process in children if process.name() == "raylet"]
    servers = [process for process in children if process not in (*actors, *ranks)]
    shared = sum(map(touched_shared_memory, raylets))
    store = sum(map(object_store_bytes, raylets))
    return {
        "processes": len(ranks) + len(actors),
        "learner_mb": sum(process.memory_info().rss for process in ranks) / MEGABYTE,
        "actors_mb": sum(process.memory_info().rss for process in actors) / MEGABYTE,
        "servers_mb": (sum(process.memory_info().rss for process in servers) - shared) / MEGABYTE,
        "object_store_mb": store / MEGABYTE,
        "learner_fds": sum(process.num_fds() for process in ranks),
        "learner_threads": sum(process.num_threads() for process in ranks),
        "actors_fds": sum(process.num_fds() for process in actors),
        "actors_threads": sum(process.num_threads() for process in actors),
    }


def touched_shared_memory(process: psutil.Process) -> int:
    """Resident shared memory in bytes, from /proc; 0 for a process that has just ended."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssShmem:"))


def object_store_bytes(raylet: psutil.Process) -> int:
    """Allocated bytes of the object store's file, which is unlinked but held open by the raylet."""
    held = [path for path in Path(f"/proc/{raylet.pid}/fd").iterdir() if "/plasma" in str(path.readlink())]
    return sum(512 * path.stat().st_blocks for path in held)


def frames_so_far(run_dir: Path) -> int:
    try:
        return json.loads((run_dir / "metrics.jsonl").read_bytes().splitlines()[-1])["frame"]
    except (OSError, IndexError, ValueError):
        return 0


def watch(arguments: argparse.Namespace, run_dir: Path) -> list[dict[str, float]]:
    command = [
        sys.executable, str(ROOT / "launch.py"), "train", "--game", arguments.game, "--task", arguments.task,
        "--run-dir", str(run_dir), "--frames", str(arguments.frames), "--log-frames", str(max(1, arguments.frames // 500)),
        "--eval-episodes", "0", *arguments.flags,
    ]  # fmt: skip
    samples = []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        learner, start = psutil.Process(process.pid), time.monotonic()
        while process.poll() is None:
            time.sleep(arguments.seconds)
            if frame := frames_so_far(run_dir):
                try:
                    samples.append({"seconds": time.monotonic() - start, "frame": frame} | sample(learner))
                except (psutil.Error, OSError):
                    continue
    finally:
        process.terminate()
        process.wait()
    if process.returncode:
        sys.exit(f"the run ended with exit code {process.returncode}")
    complete = max((found["processes"] for found in samples), default=0)
    return [found for found in samples[:-1] if found["processes"] == complete]  # With fewer the run is shutting down.


@dataclass(frozen=True)
class MemoryReport:
    """Drift of memory and counts after the warm-up."""

    drift: dict[str, float]
    """Relative change of the mean of each memory, from the first quarter to the last."""
    counts: dict[str, tuple[float, float]]
    """Median of each count in the first quarter and in the last."""
    ranges: dict[str, tuple[float, float]]
    """Minimum and maximum of each count."""

    @property
    def flat(self) -> bool:
        return max(self.drift.values()) < LIMIT and all(early == late for early, late in self.counts.values())

    def lines(self) -> dict[str, str]:
        """Text for each quantity."""
        lines = {name: f"{change:+.2%}" for name, change in self.drift.items()}
        for name, (early, late) in self.counts.items():
            low, high = self.ranges[name]
            lines[name] = f"{early:g}" if early == late else f"{early:g}, later {late:g}"
            lines[name] += "" if low == high else f" ({low:g} to {high:g})"
        return lines


def analyse(samples: list[dict[str, float]]) -> MemoryReport:
    measured = samples[int(WARM_UP * len(samples)) :]
    quarter = len(measured) // 4
    if not quarter:
        sys.exit("the run was too short for a memory report; give it more --frames")
    columns = {name: [row[name] for row in measured] for name in (*MEMORY, *COUNTS)}
    first, last = ({name: column[part] for name, column in columns.items()} for part in (slice(quarter), slice(-quarter, None)))
    return MemoryReport(
        drift={name: relative_change(first[name], last[name]) for name in MEMORY},
        counts={name: (statistics.median(first[name]), statistics.median(last[name])) for name in COUNTS},
        ranges={name: (min(columns[name]), max(columns[name])) for name in COUNTS},
    )


def relative_change(first: list[float], last: list[float]) -> float:
    """From the mean of the first to that of the last; 0 for what is not there at all."""
    early, late = statistics.fmean(first), statistics.fmean(last)
    return late / early - 1 if early else math.inf if late else 0.0


def draw(samples: list[dict[str, float]], memory: MemoryReport, title: str, path: Path) -> None:
    figure, axes = plt.subplots(len(MEMORY) + 1, 1, figsize=(8, 10), sharex=True, layout="constrained")
    frames, lines = [row["frame"] / 1e6 for row in samples], memory.lines()
    for axis, name in zip(axes, MEMORY, strict=False):
        axis.plot(frames, [row[name] for row in samples])
        axis.set_ylabel(name)
        axis.set_ylim(0, 1.15 * max(row[name] for row in samples) or 1)
        axis.set_title(f"drift {lines[name]}", fontsize="small", loc="right")
    for name in COUNTS:
        axes[-1].plot(frames, [row[name] for row in samples], label=f"{name}: {lines[name]}")
    axes[-1].set_ylim(0)
    axes[-1].legend(fontsize="small", ncols=2, loc="lower right")
    axes[-1].set_xlabel("million frames")
    axes[0].set_title(title, loc="left")
    figure.savefig(path, dpi=110)


def report(samples: list[dict[str, float]], arguments: argparse.Namespace) -> bool:
    """Write, draw and print the memory report; return whether the run is flat."""
    memory = analyse(samples)
    record = {"game": arguments.game, "task": arguments.task, "frames": arguments.frames, "limit": LIMIT, "warm_up": WARM_UP,
              "flags": arguments.flags, "flat": memory.flat, **asdict(memory), "samples": samples}  # fmt: skip
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".json").write_text(json.dumps(record) + "\n")
    title = f"{arguments.game}, {arguments.task}, {arguments.frames:,} frames"
    draw(samples, memory, title, arguments.out.with_suffix(".png"))
    for name, line in memory.lines().items():
        print(f"{name:<16} {line}")
    print("flat" if memory.flat else f"NOT flat: a memory rose by {LIMIT:.0%} or more, or a count changed")
    return memory.flat


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--task", default="none")
    parser.add_argument("--frames", type=int, default=3_000_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="between two samples")
    parser.add_argument("--out", type=Path, required=True, help="where to write, without .json and .png")
    parser.add_argument("--run-dir", type=Path, help="where to keep the run; by default it is deleted")
    arguments, flags = parser.parse_known_args()
    arguments.flags = flags
    with tempfile.TemporaryDirectory() as directory:
        samples = watch(arguments, arguments.run_dir or Path(directory) / "run")
    return 0 if report(samples, arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
