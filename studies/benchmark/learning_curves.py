"""Learning curves of finished or unfinished runs as a figure and a CSV file.

    python -m studies.benchmark.learning_curves runs/pong-seed1 runs/pong-seed2 --out results/impala/pong

writes results/impala/pong.png and pong.csv (game, seed, frame, mean raw score of the last 100 games, frames per second).
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLUMNS = ("game", "seed", "frame", "episode_return", "frames_per_second")


def read_curve(run_dir: Path) -> list[dict[str, Any]]:
    config = json.loads((run_dir / "config.json").read_text())["config"]
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [
        {
            "game": config["env"]["game"],
            "seed": config["run"]["seed"],
            "frame": line["frame"],
            "episode_return": round(line["charts/episode_return"], 3),
            "frames_per_second": round(line["charts/frames_per_second"]),
        }
        for line in lines
        if "charts/episode_return" in line
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path, help="path of the figure and the CSV file, without a suffix")
    arguments = parser.parse_args()
    curves = [curve for curve in map(read_curve, arguments.run_dirs) if curve]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for curve in curves:
            writer.writerows(curve)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for curve in curves:
        millions = [row["frame"] / 1e6 for row in curve]
        axes.plot(millions, [row["episode_return"] for row in curve], label=f"seed {curve[0]['seed']}")
    axes.set(xlabel="million environment frames", ylabel="raw score, mean of last 100 games", title=curves[0][0]["game"])
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(arguments.out.with_suffix(".png"), dpi=120)


if __name__ == "__main__":
    main()
