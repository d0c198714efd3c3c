"""Throughput of each component alone and of training, and the efficiency of training relative to its components."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from actors.resources import Resources, available_cores
from actors.rollout import RolloutWorker, sample_actions
from actors.trajectory import Collator
from agents.agent import Agent
from agents.threads import set_threads
from configs.commands import BenchmarkConfig
from configs.errors import StopRequested
from configs.train import ActorConfig, AgentConfig, EnvConfig, LearnerConfig, RunConfig, TrainConfig
from envs.frame_stack import FrameStack
from envs.registry import game_spec, make_games
from envs.stream import EpisodeStream
from learners.allocator import keep_freed_memory
from learners.learner import Learner
from studies.benchmark.measuring import PROCESSES, measure_in_processes
from studies.benchmark.task_costs import measure_memory, measure_tasks
from studies.benchmark.task_throughput import measure_task_throughput
from training.costs import layout_for
from training.loop import train

WARM_UP_SECONDS = 10.0
ENDLESS = 10**12
UPDATES_PER_LINE = 4
"""Updates between two lines of metrics: enough lines to measure by, few enough not to slow training down."""


@dataclass(frozen=True)
class Part:
    """Core-seconds per environment frame of one component."""

    name: str
    seconds_per_frame: float

    @property
    def frames_per_second(self) -> float:
        """Throughput of one core that does nothing else."""
        return 1 / self.seconds_per_frame


def mean_part(parts: Sequence[Part]) -> Part:
    return Part(parts[0].name, sum(part.seconds_per_frame for part in parts) / len(parts))


def run_benchmark(config: BenchmarkConfig, stop: threading.Event) -> dict[str, Any]:
    """Measure each component alone, then training, then each component again, on the same cores.

    Raises StopRequested if `stop` is set before the end.
    """
    keep_freed_memory()
    training = TrainConfig(
        env=EnvConfig(game=config.game),
        agent=AgentConfig(torso=config.torso),
        learner=LearnerConfig(unroll=config.unroll, batch_size=config.batch_size),
        actors=ActorConfig(),
        run=RunConfig(frames=ENDLESS, eval_episodes=0),
    )
    # Refuses unknown games in this process, before others are started.
    spec = game_spec(training.env.game, training.env.protocol)
    training = training.with_run(log_frames=UPDATES_PER_LINE * config.unroll * config.batch_size * spec.frames_per_step)
    cores = available_cores()
    layout = layout_for(training, cores)
    resources = layout.resources
    before = measure_parts(training, resources, cores, config.seconds / 6, stop)
    trained = measure_training(training, config.seconds, stop)
    after = measure_parts(training, resources, cores, config.seconds / 6, stop)  # The speed of a machine drifts.
    env, inference, collate, learner = (mean_part(parts) for parts in zip(before, after, strict=True))
    ceiling = cores / sum(part.seconds_per_frame for part in (env, inference, collate, learner))
    multiples: dict[str, float] = {}
    memory: dict[str, float] = {}
    tasks: dict[str, dict[str, Any]] = {}
    if config.tasks:
        multiples = measure_tasks(training, config.measured_tasks, resources, stop)
        if "reverse_gvf" in config.measured_tasks:
            memory = measure_memory(training, stop)
        playing = env.seconds_per_frame + inference.seconds_per_frame + collate.seconds_per_frame
        tasks = measure_task_throughput(
            training, config.measured_tasks, cores, playing, lambda each: measure_training(each, config.seconds, stop), stop
        )
    return {
        **config.measured_with(),
        "cores": cores,
        "learners": layout.learners,
        "pool": layout.pool,
        "actors": resources.num_actors,
        "envs_per_actor": resources.envs_per_actor,
        "learner_threads": resources.learner_threads,
        "frames_per_second": trained["frames_per_second"],
        "ceiling_frames_per_second": ceiling,
        "efficiency": trained["frames_per_second"] / ceiling,
        "env_frames_per_second": env.frames_per_second,
        "inference_frames_per_second": inference.frames_per_second,
        "learner_frames_per_second": 1 / (collate.seconds_per_frame + learner.seconds_per_frame),
        "collate_share": collate.seconds_per_frame / (collate.seconds_per_frame + learner.seconds_per_frame),
        "training": trained,
        "task_step_multiples": multiples,
        "tasks": tasks,
        "meta_peak_memory_mb": memory,
    }


def measure_parts(config: TrainConfig, resources: Resources, cores: int, seconds: float, stop: threading.Event) -> list[Part]:
    """Emulation, inference, collation and learning, one after the other, each on all cores at once.

    A core is faster while the others are idle (clock, caches, sibling threads), so a ceiling from single-core measurements
    could not be reached.
    """
    copies = max(1, cores // resources.learner_threads)
    arguments = (config, resources, seconds, PROCESSES.Barrier(copies))
    measured = measure_in_processes(_measure_parts, arguments, copies, stop)
    return [mean_part(parts) for parts in zip(*measured, strict=True)]


def _measure_parts(config: TrainConfig, resources: Resources, seconds: float, barrier: Any) -> list[Part]:
    keep_freed_memory()
    parts: list[Part] = []
    for measure in (measure_env, measure_inference, measure_learner):
        barrier.wait()
        parts += measure(config, resources, seconds)
    return parts


def measure_env(config: TrainConfig, resources: Resources, seconds: float) -> list[Part]:
    """Emulation and frame stacking under random actions."""
    n = resources.envs_per_actor
    stream = EpisodeStream(make_games(config.env.game, config.env.protocol, n), seed=0)
    stack = FrameStack(stream.spec, n)
    stack.push(stream.reset(), np.ones(n, dtype=bool))
    rng = np.random.default_rng(0)

    def step() -> None:
        result = stream.step(rng.integers(stream.spec.num_actions, size=n))
        stack.push(result.frames, result.new_game)

    part = Part("env", _seconds_per_call(step, seconds) / (n * stream.spec.frames_per_step))
    stream.close()
    return [part]


def measure_inference(config: TrainConfig, resources: Resources, seconds: float) -> list[Part]:
    """The acting network and the sampling of actions, on one thread."""
    set_threads(1)
    n = resources.envs_per_actor
    spec = game_spec(config.env.game, config.env.protocol)
    agent = Agent(spec, config.agent.torso)
    rng = np.random.default_rng(0)
    stack = FrameStack(spec, n)
    stack.array[:] = rng.integers(255, size=stack.array.shape, dtype=np.uint8)
    observations = torch.from_numpy(stack.array)
    first, state = torch.zeros(n, dtype=torch.bool), agent.initial_state(n)

    @torch.inference_mode()
    def step() -> None:
        logits, _ = agent.act(observations, first, state)
        sample_actions(logits.numpy(), rng)

    return [Part("inference", _seconds_per_call(step, seconds) / (n * spec.frames_per_step))]


def measure_learner(config: TrainConfig, resources: Resources, seconds: float) -> list[Part]:
    """Collation (concatenating trajectories and rebuilding frame stacks), and the rest of an update."""
    set_threads(resources.learner_threads)
    worker = RolloutWorker(config, resources.envs_per_actor, seed=0)
    learner = Learner(config, worker.spec)
    collator = Collator(config.learner.batch_size)
    worker.set_weights(learner.weights(), learner.version)
    trajectory = worker.rollout()
    worker.close()

    def join() -> Any:
        while not collator.ready:
            collator.add(trajectory)
        return collator.batch()

    batch = join()
    frames = batch.steps * worker.spec.frames_per_step

    def collate() -> None:
        join().observations()

    def step() -> None:
        learner.step(batch)
        learner.weights()

    stacking = _seconds_per_call(batch.observations, seconds / 5)
    collating = _seconds_per_call(collate, seconds / 5)
    stepping = _seconds_per_call(step, seconds) - stacking
    threads = resources.learner_threads
    return [Part("collate", collating * threads / frames), Part("learner", stepping * threads / frames)]


def measure_training(config: TrainConfig, seconds: float, stop: threading.Event, also: Sequence[str] = ()) -> dict[str, float]:
    """Throughput of `launch.py train` after its warm-up, the shares of time of its parts, and means of other metrics."""
    ended = threading.Event()

    def end_later() -> None:
        while not stop.wait(0.2) and _measured_seconds(_whole_lines(metrics)) < seconds:
            pass
        ended.set()

    with tempfile.TemporaryDirectory() as directory:
        run_dir = Path(directory) / "run"
        metrics = run_dir / "metrics.jsonl"
        threading.Thread(target=end_later, daemon=True).start()
        train(config.with_run(run_dir=str(run_dir)), ended)
        if stop.is_set():
            raise StopRequested
        return summarise(_whole_lines(metrics), also)


def summarise(lines: Sequence[dict[str, float]], also: Sequence[str] = ()) -> dict[str, float]:
    """Throughput, shares of time and means of other metrics from the metrics of a run, without its warm-up.

    Lines of batches that needed no new trajectory have no actor times.
    """
    measured = _after_warm_up(lines)
    speed = (measured[-1]["frame"] - measured[0]["frame"]) / _measured_seconds(lines)
    shares: dict[str, list[float]] = {}
    for line in measured:
        for name, value in line.items():
            if name.startswith("time/") or name in also:
                shares.setdefault(name.removeprefix("time/"), []).append(value)
    return {"frames_per_second": speed} | {name: float(np.mean(values)) for name, values in shares.items()}


def _after_warm_up(lines: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    return [line for line in lines if line["charts/wall_seconds"] >= WARM_UP_SECONDS]


def _measured_seconds(lines: Sequence[dict[str, float]]) -> float:
    measured = [line["charts/wall_seconds"] for line in _after_warm_up(lines)]
    return measured[-1] - measured[0] if measured else 0.0


def _whole_lines(metrics: Path) -> list[dict[str, float]]:
    """The complete lines of a metrics file that may still be written."""
    lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _seconds_per_call(function: Callable[[], object], seconds: float) -> float:
    function()
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        function()
        calls += 1
    return elapsed / calls


def print_table(result: dict[str, Any]) -> None:
    console = Console()
    table = Table(title=f"{result['game']}, {result['torso']} torso, T {result['unroll']}, B {result['batch_size']}")
    table.add_column("part")
    table.add_column("frames/s", justify="right")
    for name in ("env", "inference", "learner"):
        table.add_row(f"{name} alone, one core", f"{result[f'{name}_frames_per_second']:,.0f}")
    table.add_row(f"ceiling, {result['cores']} cores", f"{result['ceiling_frames_per_second']:,.0f}")
    table.add_row("training", f"{result['frames_per_second']:,.0f}")
    console.print(table)
    console.print(f"efficiency {result['efficiency']:.2f}; collation is {result['collate_share']:.1%} of the learner's work")
    shares = ", ".join(f"{k} {v:.0%}" for k, v in result["training"].items() if k != "frames_per_second")
    console.print(f"time in training: {shares}")
    if result["task_step_multiples"]:
        costs = Table(title="learner step with each auxiliary task")
        costs.add_column("task")
        costs.add_column("times plain", justify="right")
        for task, multiple in result["task_step_multiples"].items():
            costs.add_row(task, f"{multiple:.2f}")
        console.print(costs)
        peaks = ", ".join(f"K = {interval}: {peak:,.0f} MB" for interval, peak in result["meta_peak_memory_mb"].items())
        speeds = Table(title="training with each auxiliary task, frames/s and share of the ceiling")
        for heading in ("task", "layout", "one learner", "layout chosen"):
            speeds.add_column(heading, justify="left" if heading in ("task", "layout") else "right")
        for task, row in result["tasks"].items():
            alone = f"{row['one_learner_frames_per_second']:,.0f} ({row['one_learner_efficiency']:.2f})"
            speeds.add_row(task, row["layout"], alone, f"{row['frames_per_second']:,.0f} ({row['efficiency']:.2f})")
        console.print(speeds)
    if result["meta_peak_memory_mb"]:
        console.print(f"peak memory of learning with reverse_gvf: {peaks}")
