"""The paper's figure 3c: anomaly detection on Reacher with a learnt distribution of the reverse return.

The paper learns off-policy, from a behaviour policy with more noise, with the importance ratio rho of single steps. An
on-policy arm is added to separate the effect of the importance weights from the rest of the method.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from configs.commands import ReproduceConfig
from retrospective.anomaly import AnomalyMonitor
from retrospective.finite_mdp import Array
from retrospective.neural_quantile_td import NeuralQuantileTD
from retrospective.reacher import ACTION_SIZE, STATE_SIZE, ReacherStreams
from studies.reproduce.experiment import PAPER_RUNS, Experiment, Settings, mean_and_error, require_extra, run_generator
from studies.reproduce.reacher_policy import LEARNING_RATE, NOISE, TD3_SETTINGS, ReacherPolicy, reacher_policy

SETTINGS: Settings = {
    "td3_steps": 20_000,
    "td3": {"learning_rate": LEARNING_RATE, "action_noise": NOISE, **TD3_SETTINGS},
    "time_limit": 50,
    "behaviour_stds": {"off-policy": 0.5, "on-policy": 0.1},
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
    """Write policy.safetensors, data.json, figure.png and summary.md; return the summary."""
    require_extra("reacher", "reacher", "stable_baselines3", "mujoco")
    runs = config.runs_or(PAPER_RUNS)
    experiment = Experiment(Path(config.out), SETTINGS | {"study": "reacher", "seed": config.seed}, config.ray_address)
    policy = reacher_policy(experiment.out / "policy.safetensors", SETTINGS["td3_steps"], config.seed, stop)
    data = experiment.collect(runs, 1, learn_and_monitor, "reproduce reacher", stop, policy)
    samples = {arm: np.array([run[arm]["probability"] for run in data]) for arm in SETTINGS["behaviour_stds"]}
    steps = np.arange(1, SETTINGS["watching_steps"] // SETTINGS["watching_log_steps"] + 1) * SETTINGS["watching_log_steps"]
    draw(samples, steps, experiment.out / "figure.png")
    experiment.write_json(
        "data.json",
        {"runs": runs, "watching_steps": steps.tolist(), "anomalies": anomaly_names(), "policy": policy.values}
        | {arm: arm_data(samples[arm], [run[arm] for run in data]) for arm in samples},
    )
    summary = summarise(samples, policy, data)
    experiment.write_text("summary.md", summary)
    return summary


def anomaly_names() -> list[str]:
    rewards = [f"reward {size:+g}" for size in SETTINGS["anomalous_rewards"]]
    return rewards + [f"policy std {std:g}" for std in SETTINGS["anomalous_stds"]]


def arm_data(samples: Array, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of data.json for one behaviour policy; samples [runs, anomalies, logs]."""
    mean, error = mean_and_error(samples)
    return {
        "probability_mean": mean.tolist(),
        "probability_standard_error": error.tolist(),
        "predicted_return": [run["predicted_return"] for run in runs],
        "return": [run["return"] for run in runs],
    }


def learn_and_monitor(settings: Settings, numbers: Sequence[int], policy: ReacherPolicy) -> list[dict[str, Any]]:
    """For each behaviour policy, learn the target policy's quantiles from its stream, then monitor the target policy."""
    torch.set_num_threads(1)
    return [
        {
            arm: _learn_and_monitor(settings, std, run_generator(settings["seed"], number), policy)
            for arm, std in settings["behaviour_stds"].items()
        }
        for number in numbers
    ]


def _learn_and_monitor(
    settings: Settings, behaviour_std: float, rng: np.random.Generator, policy: ReacherPolicy
) -> dict[str, Any]:
    learner = learn(settings, behaviour_std, rng, policy)
    return monitor_anomalies(settings, rng, policy, learner)


def make_learner(settings: Settings, seed: int) -> NeuralQuantileTD:
    """Quantiles of Reacher's reverse return, with the study's settings."""
    return NeuralQuantileTD(
        STATE_SIZE,
        settings["quantiles"],
        settings["hidden"],
        settings["learning_rate"],
        settings["capacity"],
        settings["batch_size"],
        settings["target_interval"],
        settings["kappa"],
        seed,
    )


def learn(settings: Settings, behaviour_std: float, rng: np.random.Generator, policy: ReacherPolicy) -> NeuralQuantileTD:
    streams = ReacherStreams(draw_seeds(rng, 1), settings["time_limit"])
    learner = make_learner(settings, seed=draw_seeds(rng, 1)[0])
    target_std = settings["target_std"]
    for _ in range(settings["learning_steps"]):
        state = streams.state
        noise = behaviour_std * rng.standard_normal((1, ACTION_SIZE))
        next_state, reward, discount = streams.step(policy(state) + noise)
        # A step that resets the episode ignores its action, so the ratio is 1 there.
        rho = np.where(discount > 0, normal_importance_ratio(noise, target_std, behaviour_std), 1.0)
        learner.observe(state, next_state, reward, discount, rho)
        learner.update()
    streams.close()
    return learner


def normal_importance_ratio(noise: Array, target_std: float, behaviour_std: float) -> Array:
    """Importance ratio rho of the action mean + `noise` under two normal policies with the same mean."""
    spread = 1 / target_std**2 - 1 / behaviour_std**2
    return (behaviour_std / target_std) ** noise.shape[-1] * np.exp(-0.5 * spread * (noise**2).sum(-1))


def monitor_anomalies(
    settings: Settings, rng: np.random.Generator, policy: ReacherPolicy, learner: NeuralQuantileTD
) -> dict[str, Any]:
    """Anomaly probabilities [anomalies, logs], averaged between logs, and statistics of the first half.

    Each anomaly has its own stream and begins halfway. The statistics are the mean episode length, the mean reverse return
    and the mean of the predicted quantiles.
    """
    rewards, stds = np.array(settings["anomalous_rewards"]), np.array(settings["anomalous_stds"])
    count = len(rewards) + len(stds)
    streams = ReacherStreams(draw_seeds(rng, count), settings["time_limit"])
    monitor = AnomalyMonitor(learner.quantiles, (count,), settings["delta"], settings["sigma"])
    normal = np.full(count, settings["target_std"])
    added, anomalous = np.concatenate([rewards, np.zeros(len(stds))]), normal.copy()
    anomalous[len(rewards) :] = stds
    half = settings["watching_steps"] // 2
    probabilities, returns, predictions, reaches = [], [], [], 0
    for step in range(settings["watching_steps"]):
        std = normal if step < half else anomalous
        actions = policy(streams.state) + std[:, None] * rng.standard_normal((count, ACTION_SIZE))
        state, reward, discount = streams.step(actions)
        if step >= half:
            reward = reward + added * (rng.random(count) < settings["anomalous_reward_probability"])
        reading = monitor.step(state, reward, discount)
        probabilities.append(reading.probability)
        if step < half:
            reaches += int((discount == 0).sum())
            returns.append(reading.reverse_return)
            predictions.append(learner.quantiles(state).mean(-1))
    streams.close()
    logs = settings["watching_steps"] // settings["watching_log_steps"]
    return {
        "probability": np.array(probabilities).reshape(logs, -1, count).mean(1).T.tolist(),
        "reach_steps": half * count / max(1, reaches),
        "return": float(np.mean(returns)),
        "predicted_return": float(np.mean(predictions)),
    }


def draw_seeds(rng: np.random.Generator, count: int) -> list[int]:
    """Seeds of `count` streams."""
    return [int(seed) for seed in rng.integers(2**31, size=count)]


def draw(samples: dict[str, Array], steps: Array, path: Path) -> None:
    figure = Figure(figsize=(10, 4 * len(samples)), layout="constrained")
    rows = figure.subplots(len(samples), 2, sharey=True, squeeze=False)
    first_policy = len(SETTINGS["anomalous_rewards"])
    for arm, row in zip(samples, rows, strict=True):
        for i, name in enumerate(anomaly_names()):
            axes = row[int(i >= first_policy)]
            mean, error = mean_and_error(samples[arm][:, i])
            axes.plot(steps, mean, label=name)
            axes.fill_between(steps, mean - error, mean + error, alpha=0.25)
        for axes, kind in zip(row, ("reward", "policy"), strict=True):
            axes.axvline(steps[-1] / 2, color="0.5", linestyle=":", label="anomaly begins")
            axes.set(title=f"c: {kind} anomalies, learnt {arm}", xlabel="step", ylim=(0, 1.03))
            axes.legend(fontsize=8, loc="lower left")
            axes.grid(alpha=0.3)
        row[0].set_ylabel("anomaly probability")
    figure.savefig(path, dpi=100)


def summarise(samples: dict[str, Array], policy: ReacherPolicy, data: list[dict[str, Any]]) -> str:
    values = policy.values
    reach_steps = np.mean([run[arm]["reach_steps"] for run in data for arm in samples])
    lines = [
        "# Figure 3c: Reacher",
        "",
        f"{len(data)} runs. TD3 trained for {values['steps']:,} steps returns {values['return_mean']:.2f} +-"
        f" {values['return_standard_error']:.2f} an episode ({values['evaluation_episodes']} episodes; the paper says about"
        f" -4). The policy that is watched for {SETTINGS['watching_steps']:,} steps adds noise of {SETTINGS['target_std']} to"
        f" it; its reaches take {reach_steps:.0f} steps on average (at most {SETTINGS['time_limit']}). Its quantiles are"
        f" learnt for {SETTINGS['learning_steps']:,} steps.",
    ]
    for arm, std in SETTINGS["behaviour_stds"].items():
        weight = "weighted by rho" if std != SETTINGS["target_std"] else "which is its own"
        lines += ["", f"## Learnt {arm}, from a stream with noise {std} ({weight})", ""]
        lines += summarise_arm(samples[arm], [run[arm] for run in data])
    return "\n".join(lines) + "\n"


def summarise_arm(samples: Array, runs: list[dict[str, Any]]) -> list[str]:
    half = samples.shape[-1] // 2
    before, after = samples[..., :half].mean(-1), samples[..., half:].mean(-1)  # [runs, anomalies]
    rise, rise_error = mean_and_error(after - before)
    actual, predicted = ([run[name] for run in runs] for name in ("return", "predicted_return"))
    lines = [
        f"Before the anomalies the reverse return is {np.mean(actual):.2f} on average, and the mean of the learnt"
        f" quantiles {np.median(predicted):,.2f} (median of the runs; {min(predicted):,.2f} to {max(predicted):,.2f}).",
        "",
        "| anomaly | before it begins | after | rise |",
        "| --- | --- | --- | --- |",
    ]
    for i, name in enumerate(anomaly_names()):
        cells = [f"{m:.3f} +- {e:.3f}" for m, e in (mean_and_error(before[:, i]), mean_and_error(after[:, i]))]
        lines.append(f"| {name} | {' | '.join(cells)} | {rise[i]:.3f} +- {rise_error[i]:.3f} |")
    higher = [bool(rise[i] > 2 * rise_error[i]) for i in range(len(rise))]
    rewards = len(SETTINGS["anomalous_rewards"])
    steps = [mean_and_error(after[:, i + 1] - after[:, i]) for i in range(rewards - 1)]
    growth = ", then by ".join(f"{mean:.4f} +- {error:.4f}" for mean, error in steps)
    grows = all(mean > 2 * error for mean, error in steps)
    shrinks = any(mean < -2 * error for mean, error in steps)
    if not all(higher) or shrinks:
        verdict = "does not hold"
    else:
        verdict = "holds" if grows else "holds, except that not every larger reward anomaly is told from the next smaller one"
    return [
        *lines,
        "",
        f"The probability is higher in the second half (by more than two standard errors) for {sum(higher)} of {len(higher)}"
        f" anomalies. From one reward anomaly to the next larger it changes by {growth}.",
        "",
        "The paper's finding (higher in the second half for every anomaly, growing with the size of the reward anomalies)"
        f" **{verdict}**.",
    ]
