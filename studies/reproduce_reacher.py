"""The paper's figure 3c: anomalies of an arm in continuous space, found with a distribution learnt off-policy."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from configs.reproduce import ReproduceConfig
from envs.finite_mdp import Array
from envs.reacher import ACTION_SIZE, STATE_SIZE, ReacherStreams
from learners.anomaly import AnomalyMonitor
from learners.neural_quantile_td import NeuralQuantileTD
from studies.experiment import PAPER_RUNS, Experiment, Settings, mean_and_error, run_generator
from studies.reacher_policy import ReacherPolicy, reacher_policy

SETTINGS: Settings = {
    "td3_steps": 20_000,
    "time_limit": 50,
    "behaviour_std": 0.5,
    "target_std": 0.1,
    "quantiles": 20,
    "hidden": [64, 64],
    "learning_rate": 5e-3,
    "kappa": 1.0,
    "capacity": 10_000,
    "batch_size": 128,
    "target_interval": 100,
    "learning_steps": 50_000,
    "watching_steps": 20_000,
    "watching_log_steps": 200,
    "anomalous_rewards": [-1.0, -5.0, -10.0],
    "anomalous_reward_probability": 0.5,
    "anomalous_stds": [0.9, 1.8, 2.7],
    "delta": 1.0,
    "sigma": 1.0,
}


def reproduce_reacher(config: ReproduceConfig, stop: threading.Event) -> str:
    """Writes policy.safetensors, data.json, figure.png and summary.md; returns the summary."""
    runs = config.runs_or(PAPER_RUNS)
    experiment = Experiment(Path(config.out), SETTINGS | {"study": "reacher", "seed": config.seed}, config.ray_address)
    policy = reacher_policy(experiment.out / "policy.safetensors", SETTINGS["td3_steps"], config.seed, stop)
    data = experiment.collect(runs, 1, learn_and_watch, "reproduce reacher", stop, policy)
    samples = np.array([run["probability"] for run in data])  # [runs, anomalies, logs]
    steps = np.arange(1, samples.shape[-1] + 1) * SETTINGS["watching_log_steps"]
    draw(samples, steps, experiment.out / "figure.png")
    mean, error = mean_and_error(samples)
    experiment.write_json(
        "data.json",
        {
            "runs": runs,
            "watching_steps": steps.tolist(),
            "anomalies": anomaly_names(),
            "probability_mean": mean.tolist(),
            "probability_standard_error": error.tolist(),
            "policy": policy.values,
        },
    )
    summary = summarise(samples, policy, [run["reach_steps"] for run in data])
    experiment.write_text("summary.md", summary)
    return summary


def anomaly_names() -> list[str]:
    rewards = [f"reward {size:+g}" for size in SETTINGS["anomalous_rewards"]]
    return rewards + [f"policy std {std:g}" for std in SETTINGS["anomalous_stds"]]


def learn_and_watch(settings: Settings, numbers: Sequence[int], policy: ReacherPolicy) -> list[dict[str, Any]]:
    """Phase 1 learns the target policy's quantiles from the behaviour's stream; phase 2 watches the target policy."""
    torch.set_num_threads(1)
    return [_learn_and_watch(settings, run_generator(settings["seed"], number), policy) for number in numbers]


def _learn_and_watch(settings: Settings, rng: np.random.Generator, policy: ReacherPolicy) -> dict[str, Any]:
    learner = learn(settings, rng, policy)
    probability, reach_steps = watch(settings, rng, policy, learner)
    return {"probability": probability.tolist(), "reach_steps": reach_steps}


def learn(settings: Settings, rng: np.random.Generator, policy: ReacherPolicy) -> NeuralQuantileTD:
    streams = ReacherStreams(_seeds(rng, 1), settings["time_limit"])
    learner = NeuralQuantileTD(
        STATE_SIZE,
        settings["quantiles"],
        settings["hidden"],
        settings["learning_rate"],
        settings["capacity"],
        settings["batch_size"],
        settings["target_interval"],
        settings["kappa"],
        seed=_seeds(rng, 1)[0],
    )
    behaviour_std, target_std = settings["behaviour_std"], settings["target_std"]
    for _ in range(settings["learning_steps"]):
        state = streams.state
        noise = behaviour_std * rng.standard_normal((1, ACTION_SIZE))
        next_state, reward, discount = streams.step(policy(state) + noise)
        # A step that draws a new start ignores its action, so both policies do the same there.
        rho = np.where(discount > 0, normal_importance_ratio(noise, target_std, behaviour_std), 1.0)
        learner.observe(state, next_state, reward, discount, rho)
        learner.update()
    streams.close()
    return learner


def normal_importance_ratio(noise: Array, target_std: float, behaviour_std: float) -> Array:
    """rho of an action that lies `noise` from the mean of both normal policies."""
    spread = 1 / target_std**2 - 1 / behaviour_std**2
    return (behaviour_std / target_std) ** noise.shape[-1] * np.exp(-0.5 * spread * (noise**2).sum(-1))


def watch(
    settings: Settings, rng: np.random.Generator, policy: ReacherPolicy, learner: NeuralQuantileTD
) -> tuple[Array, float]:
    """Anomaly probabilities [anomalies, logs], each the mean since the last, and the mean length of a reach before they begin.

    Every anomaly has a stream of its own, watched side by side, and begins half-way.
    """
    rewards, stds = np.array(settings["anomalous_rewards"]), np.array(settings["anomalous_stds"])
    count = len(rewards) + len(stds)
    streams = ReacherStreams(_seeds(rng, count), settings["time_limit"])
    monitor = AnomalyMonitor(learner.quantiles, (count,), settings["delta"], settings["sigma"])
    normal = np.full(count, settings["target_std"])
    added, strange = np.concatenate([rewards, np.zeros(len(stds))]), normal.copy()
    strange[len(rewards) :] = stds
    half = settings["watching_steps"] // 2
    probabilities, reached = [], 0
    for step in range(settings["watching_steps"]):
        std = normal if step < half else strange
        actions = policy(streams.state) + std[:, None] * rng.standard_normal((count, ACTION_SIZE))
        state, reward, discount = streams.step(actions)
        if step < half:
            reached += int((discount == 0).sum())
        else:
            reward = reward + added * (rng.random(count) < settings["anomalous_reward_probability"])
        probabilities.append(monitor.step(state, reward, discount).probability)
    streams.close()
    logs = settings["watching_steps"] // settings["watching_log_steps"]
    return np.array(probabilities).reshape(logs, -1, count).mean(1).T, half * count / max(1, reached)


def _seeds(rng: np.random.Generator, count: int) -> list[int]:
    return [int(seed) for seed in rng.integers(2**31, size=count)]


def draw(samples: Array, steps: Array, path: Path) -> None:
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    first_policy = len(SETTINGS["anomalous_rewards"])
    for i, name in enumerate(anomaly_names()):
        axes = panels[int(i >= first_policy)]
        mean, error = mean_and_error(samples[:, i])
        axes.plot(steps, mean, label=name)
        axes.fill_between(steps, mean - error, mean + error, alpha=0.25)
    for axes, title in zip(panels, ("c: reward anomalies", "c: policy anomalies"), strict=True):
        axes.axvline(steps[-1] / 2, color="0.5", linestyle=":", label="anomaly begins")
        axes.set(title=title, xlabel="step", ylim=(None, 1.01))
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("anomaly probability")
    figure.savefig(path, dpi=120)


def summarise(samples: Array, policy: ReacherPolicy, reach_steps: list[float]) -> str:
    half = samples.shape[-1] // 2
    quiet, loud = samples[..., :half].mean(-1), samples[..., half:].mean(-1)  # [runs, anomalies]
    rise, rise_error = mean_and_error(loud - quiet)
    lines = [
        "# Figure 3c: Reacher",
        "",
        f"{len(samples)} runs. TD3 trained for {policy.values['steps']:,} steps returns {policy.values['return_mean']:.2f} +-"
        f" {policy.values['return_standard_error']:.2f} an episode ({policy.values['evaluation_episodes']} episodes; the paper"
        f" says about -4). The quantile network learns for {SETTINGS['learning_steps']:,} steps with noise"
        f" {SETTINGS['behaviour_std']} about the policy with noise {SETTINGS['target_std']}, whose reaches then"
        f" take {np.mean(reach_steps):.0f} steps on average (at most {SETTINGS['time_limit']}), and which is watched for"
        f" {SETTINGS['watching_steps']:,}.",
        "",
        "| anomaly | before it begins | after | rise |",
        "| --- | --- | --- | --- |",
    ]
    for i, name in enumerate(anomaly_names()):
        cells = [f"{m:.3f} +- {e:.3f}" for m, e in (mean_and_error(quiet[:, i]), mean_and_error(loud[:, i]))]
        lines.append(f"| {name} | {' | '.join(cells)} | {rise[i]:.3f} +- {rise_error[i]:.3f} |")
    higher = [bool(rise[i] > 2 * rise_error[i]) for i in range(len(rise))]
    rewards = len(SETTINGS["anomalous_rewards"])
    steps = [mean_and_error(loud[:, i + 1] - loud[:, i]) for i in range(rewards - 1)]
    grows = all(mean > 0 for mean, _ in steps)
    growth = ", then by ".join(f"{mean:.4f} +- {error:.4f}" for mean, error in steps)
    lines += [
        "",
        f"The probability is higher in the second half (by more than two standard errors) for {sum(higher)} of {len(higher)}"
        f" anomalies. From one reward anomaly to the next larger it changes by {growth}.",
        "",
        "The paper's finding (higher in the second half for every anomaly, growing with the size of the reward anomalies)"
        f" **{'holds' if all(higher) and grows else 'does not hold'}**.",
    ]
    return "\n".join(lines) + "\n"
