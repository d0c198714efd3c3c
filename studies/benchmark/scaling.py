"""How far training scales: the model of a layout beside measured runs, and its predictions for larger machines.

python -m studies.benchmark.scaling --out results/scaling

With --ray-address, layouts with actors are measured on the nodes of that cluster (docs/scaling.md has an example with hosts
that share one machine).
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from actors.layout import GPU_SPEED_UP, Costs, Layout, choose_layout, predict
from actors.resources import Resources, available_cores
from agents.threads import set_threads
from configs.train import ActorConfig, EnvConfig, LearnerConfig, RunConfig, TrainConfig
from envs.registry import game_spec
from learners.allocator import keep_freed_memory
from studies.benchmark.throughput import ENDLESS, UPDATES_PER_LINE, measure_training
from training.costs import measure_costs
from training.progress import tell
from training.storage.run_directory import provenance

PAPER_FRAMES = 10 * 5 * 3 * 200_000_000
"""Of the paper's experiment: games, agents, seeds, frames."""


@dataclass(frozen=True)
class Row:
    """One configuration: what the model says and, where it was run, what was measured."""

    name: str
    predicted: float
    """Frames per second."""
    bottleneck: str
    lag: float
    measured: float | None = None
    measured_lag: float | None = None

    @property
    def error(self) -> float | None:
        """Relative to what was measured."""
        return None if self.measured is None else self.predicted / self.measured - 1


def configurations(game: str, batch_size: int, ray_address: str = "") -> Iterator[tuple[str, TrainConfig, Layout]]:
    """Those that are measured: actors, learners and both kinds of pool, plain and with discovery; on a cluster with actors."""

    def config(task: str, layout: Layout) -> TrainConfig:
        each = layout.resources
        return TrainConfig(
            task=task,
            env=EnvConfig(game=game),
            learner=LearnerConfig(
                batch_size=batch_size,
                learners=layout.learners,
                learner_threads=each.learner_threads if layout.pool == "ray" else 0,
            ),
            actors=ActorConfig(
                pool=layout.pool,
                num_actors=each.num_actors,
                envs_per_actor=each.envs_per_actor,
                ray_address=ray_address,
            ),
            run=RunConfig(frames=ENDLESS, eval_episodes=0),
        )

    layouts = [
        Layout(1, "serial", Resources(0, batch_size, 1)),
        Layout(1, "serial", Resources(0, 2 * batch_size, 1)),
        *(Layout(1, "ray", Resources(actors, 16, 1)) for actors in (1, 2, 3, 4)),
        Layout(2, "serial", Resources(0, 16, 1)),
        Layout(2, "ray", Resources(1, 8, 1)),
    ]
    for task in ("none", "reverse_gvf"):
        for layout in layouts if task == "none" else (layouts[0], layouts[2], layouts[6]):
            if ray_address and layout.pool == "serial":
                continue
            yield f"{task}: {layout.describe()}", config(task, layout), layout


def measure_rows(game: str, batch_size: int, seconds: float, stop: threading.Event, ray_address: str = "") -> list[Row]:
    """Measure every configuration on this machine, or on the nodes of a cluster, beside its prediction.

    The nodes are taken for hosts that share the cores of this machine: for a real cluster the prediction is too low.
    """
    keep_freed_memory()
    set_threads(1)
    cores = available_cores()
    known: dict[str, Costs] = {}
    rows = []
    for name, config, layout in configurations(game, batch_size, ray_address):
        frames_per_step = game_spec(game, config.env.protocol).frames_per_step
        if config.task not in known:
            set_threads(1)
            known[config.task] = measure_costs(config)
        tell(f"measuring {name}")
        steps = config.learner.unroll * batch_size
        measured = measure_training(
            config.with_run(log_frames=UPDATES_PER_LINE * steps * frames_per_step), seconds, stop, ("policy/lag",)
        )
        found = predict(layout, known[config.task], config, cores, cores_here=1 if ray_address else cores)
        rows.append(
            Row(
                name,
                frames_per_step * found.steps_per_second,
                found.bottleneck,
                found.lag,
                measured["frames_per_second"],
                measured["policy/lag"],
            )
        )
    return rows


def predict_machines(game: str, costs: Costs) -> list[Row]:
    """Larger machines, with the layout that would be chosen there."""
    frames_per_step = game_spec(game, EnvConfig().protocol).frames_per_step
    rows = []
    for name, cores, gpus, batch_size in (
        ("16 cores, batch 32", 16, 0, 32),
        ("64 cores, batch 32", 64, 0, 32),
        ("1 GPU, 64 cores, batch 32", 64, 1, 32),
        ("8 GPUs, 512 cores, batch 256", 512, 8, 256),
    ):
        learner = LearnerConfig(batch_size=batch_size)
        config = TrainConfig(env=EnvConfig(game=game), learner=learner, run=RunConfig(frames=ENDLESS))
        there = costs.on_gpu() if gpus else costs
        chosen = choose_layout(config, there, cores, gpus)
        found = predict(chosen, there, config, cores, gpus)
        speed = frames_per_step * found.steps_per_second
        rows.append(Row(f"{name}: {chosen.describe()}", speed, found.bottleneck, found.lag))
    return rows


def paper_cost(costs: Costs, frames_per_step: int) -> dict[str, float]:
    """The paper's experiment: core-hours without a GPU, and with one that learns, GPU-hours and core-hours of actors."""
    steps = PAPER_FRAMES / frames_per_step
    playing, learning = costs.rollout_of(16), costs.update
    return {
        "core_hours": steps * (playing + learning) / 3600,
        "gpu_hours": steps * learning / GPU_SPEED_UP / 3600,
        "actor_core_hours": steps * playing / 3600,
    }


def print_rows(rows: list[Row]) -> None:
    table = Table()
    for heading in ("configuration", "predicted frames/s", "measured", "error", "bottleneck", "lag predicted", "lag measured"):
        table.add_column(heading, justify="left" if heading in ("configuration", "bottleneck") else "right")
    for row in rows:
        measured = (
            ("", "", "") if row.measured is None else (f"{row.measured:,.0f}", f"{row.error:+.0%}", f"{row.measured_lag:.1f}")
        )
        table.add_row(row.name, f"{row.predicted:,.0f}", *measured[:2], row.bottleneck, f"{row.lag:g}", measured[2])
    Console(width=160).print(table)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="The model of throughput beside measured runs")
    parser.add_argument("--out", required=True, help="directory for scaling.json")
    parser.add_argument("--game", default="pong")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run, after its warm-up")
    parser.add_argument("--ray-address", default="", help="of a cluster, for instance 10.77.0.1:6379; otherwise this machine")
    options = parser.parse_args(arguments)
    rows = measure_rows(options.game, options.batch_size, options.seconds, threading.Event(), options.ray_address)
    costs = measure_costs(
        TrainConfig(env=EnvConfig(game=options.game), task="reverse_gvf", learner=LearnerConfig(batch_size=options.batch_size))
    )
    machines = predict_machines(options.game, costs)
    print_rows(rows)
    print_rows(machines)
    result = {
        "measured": [asdict(row) | {"error": row.error} for row in rows],
        "machines": [asdict(row) for row in machines],
        "costs": asdict(costs),
        "paper": paper_cost(costs, game_spec(options.game, EnvConfig().protocol).frames_per_step),
        **provenance(),
    }
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "scaling.json").write_text(json.dumps(result, indent=1))
    return result


if __name__ == "__main__":
    main()
