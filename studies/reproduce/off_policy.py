"""Where distributional Reverse TD works off-policy: Reacher with behaviours of more and more noise, and three weights.

The target policy adds noise of 0.1 to TD3's. The three learners of a run see the same stream of the behaviour policy.
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
from retrospective.finite_mdp import Array
from retrospective.neural_density_ratio import NeuralDensityRatio
from retrospective.reacher import ACTION_SIZE, STATE_SIZE, ReacherStreams
from studies.reproduce.experiment import Experiment, Settings, require_extra, run_generator
from studies.reproduce.reacher import SETTINGS as REACHER
from studies.reproduce.reacher import draw_seeds, make_learner, normal_importance_ratio
from studies.reproduce.reacher_policy import ReacherPolicy, reacher_policy

SHARED = (
    "td3_steps", "td3", "time_limit", "target_std", "quantiles", "hidden", "learning_rate", "kappa", "capacity", "batch_size",
    "target_interval",
)  # fmt: skip
SETTINGS: Settings = {name: REACHER[name] for name in SHARED} | {
    "behaviour_stds": [0.1, 0.15, 0.2, 0.3, 0.5],
    "clip": [0.25, 4.0],
    "density_learning_rate": 1e-3,
    "learning_steps": 10_000,
    "log_steps": 250,
    "evaluation_streams": 8,
    "evaluation_steps": 250,
}
WEIGHTS = {"rho": "rho", "tau_rho": "tau rho (tau learnt)", "clipped": "rho clipped to [1/4, 4]"}
DEFAULT_RUNS = 5
DIVERGED = 10.0
"""A mean this many standard deviations of the return away from it has diverged; the noisiest behaviour's own mean is 4 away."""
LARGEST = 1e30
"""Predictions are limited to it, as JSON has no infinity."""


def reproduce_off_policy(config: ReproduceConfig, stop: threading.Event) -> str:
    """Write policy.safetensors, data.json, figure.png and summary.md; return the summary."""
    require_extra("reacher", "off_policy", "stable_baselines3", "mujoco")
    runs, stds = config.runs_or(DEFAULT_RUNS), SETTINGS["behaviour_stds"]
    experiment = Experiment(Path(config.out), SETTINGS | {"study": "off_policy", "seed": config.seed}, config.ray_address)
    policy = reacher_policy(experiment.out / "policy.safetensors", SETTINGS["td3_steps"], config.seed, stop)
    data = experiment.collect(runs * len(stds), 1, learn_and_evaluate, "reproduce off_policy", stop, policy)
    rows = table([data[i :: len(stds)] for i in range(len(stds))])
    draw(rows, experiment.out / "figure.png")
    experiment.write_json("data.json", {"runs": runs, "policy": policy.values, "rows": rows})
    summary = summarise(rows, runs)
    experiment.write_text("summary.md", summary)
    return summary


def learn_and_evaluate(settings: Settings, numbers: Sequence[int], policy: ReacherPolicy) -> list[dict[str, Any]]:
    """Run n has behaviour n mod B and seed n div B, where B counts the behaviours, so more seeds append runs."""
    torch.set_num_threads(1)
    stds, found = settings["behaviour_stds"], []
    for number in numbers:
        seed, index = divmod(number, len(stds))
        found.append(_learn_and_evaluate(settings, stds[index], run_generator(settings["seed"], seed), policy))
    return found


def _learn_and_evaluate(settings: Settings, std: float, rng: np.random.Generator, policy: ReacherPolicy) -> dict[str, Any]:
    states, returns = target_returns(settings, rng, policy)
    seed = draw_seeds(rng, 1)[0]
    learners = {name: make_learner(settings, seed) for name in WEIGHTS}
    tau = NeuralDensityRatio(
        STATE_SIZE,
        settings["hidden"],
        settings["density_learning_rate"],
        settings["capacity"],
        settings["batch_size"],
        settings["target_interval"],
        seed,
    )
    streams = ReacherStreams(draw_seeds(rng, 1), settings["time_limit"])
    logs: dict[str, list[tuple[float, float]]] = {name: [] for name in WEIGHTS}
    used: list[tuple[float, float, float]] = []
    for step in range(1, settings["learning_steps"] + 1):
        state = streams.state
        noise = std * rng.standard_normal((1, ACTION_SIZE))
        next_state, reward, discount = streams.step(policy(state) + noise)
        rho = np.where(discount > 0, normal_importance_ratio(noise, settings["target_std"], std), 1.0)
        clipped = np.clip(rho, *settings["clip"])
        tau.observe(state, next_state, rho)
        tau.update()
        for name, learner in learners.items():
            learner.observe(state, next_state, reward, discount, clipped if name == "clipped" else rho)
            learner.update(tau if name == "tau_rho" else None)
        ratio = float(tau(torch.as_tensor(state, dtype=torch.float32))[0])
        used.append((float(rho[0]), ratio * float(rho[0]), float(clipped[0])))
        if step % settings["log_steps"] == 0:
            for name, learner in learners.items():
                logs[name].append(_errors(learner.quantiles(states).mean(-1), returns))
    streams.close()
    weights = np.array(used[len(used) // 2 :])
    return {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "weights": {
            name: {
                "prediction": [mean for mean, _ in logs[name]],
                "rms_error": [error for _, error in logs[name]],
                "effective_share": effective_share(weights[:, i]),
            }
            for i, name in enumerate(WEIGHTS)
        },
    }


def target_returns(settings: Settings, rng: np.random.Generator, policy: ReacherPolicy) -> tuple[Array, Array]:
    """States [n, 10] of the target policy, and the reverse return [n] observed at each."""
    count = settings["evaluation_streams"]
    streams = ReacherStreams(draw_seeds(rng, count), settings["time_limit"])
    states, returns, current = [], [], np.zeros(count)
    for _ in range(settings["evaluation_steps"]):
        noise = settings["target_std"] * rng.standard_normal((count, ACTION_SIZE))
        state, reward, discount = streams.step(policy(streams.state) + noise)
        current = reward + discount * current
        states.append(state)
        returns.append(current)
    streams.close()
    return np.concatenate(states), np.concatenate(returns)


def _errors(predicted: Array, returns: Array) -> tuple[float, float]:
    """Mean of the predictions, and root mean squared error."""
    limited = np.nan_to_num(predicted, nan=LARGEST, posinf=LARGEST, neginf=-LARGEST)
    return float(limited.mean()), float(np.sqrt(np.square(limited - returns).mean()))


def effective_share(weights: Array) -> float:
    """Effective sample size (sum w)^2 / sum w^2 as a share of the samples [n]."""
    total = np.square(weights).sum()
    return float(weights.sum() ** 2 / total / len(weights)) if total > 0 else 0.0


def divergence_step(run: dict[str, Any], weight: str, log_steps: int) -> int | None:
    """The first logged step at which the mean of the predictions has diverged, or None."""
    error = np.abs(np.array(run["weights"][weight]["prediction"]) - run["return_mean"])
    diverged = np.flatnonzero(error > DIVERGED * run["return_std"])
    return int(diverged[0] + 1) * log_steps if len(diverged) else None


def table(by_std: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row for each behaviour and weight, with a list over runs in each column."""
    rows = []
    for std, runs in zip(SETTINGS["behaviour_stds"], by_std, strict=True):
        for weight in WEIGHTS:
            kept = [run["weights"][weight] for run in runs]
            rows.append(
                {
                    "behaviour_std": std,
                    "weight": weight,
                    "error_of_mean": [
                        abs(data["prediction"][-1] - run["return_mean"]) for data, run in zip(kept, runs, strict=True)
                    ],
                    "rms_error": [data["rms_error"][-1] for data in kept],
                    "return_std": [run["return_std"] for run in runs],
                    "divergence_step": [divergence_step(run, weight, SETTINGS["log_steps"]) for run in runs],
                    "effective_share": [data["effective_share"] for data in kept],
                }
            )
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    stds, end = SETTINGS["behaviour_stds"], SETTINGS["learning_steps"]
    never = 1.12 * end
    for i, (weight, label) in enumerate(WEIGHTS.items()):
        mine = [row for row in rows if row["weight"] == weight]
        shift = np.arange(len(stds)) + 0.18 * (i - 1)
        left.plot(shift, [np.median(row["error_of_mean"]) for row in mine], f"C{i}-", label=f"{label}, median")
        for x, row in zip(shift, mine, strict=True):
            count = len(row["error_of_mean"])
            left.plot(np.full(count, x), row["error_of_mean"], f"C{i}o", markersize=4, alpha=0.6)
            steps = [never if step is None else step for step in row["divergence_step"]]
            right.plot(x + 0.02 * (np.arange(count) - count / 2), steps, f"C{i}o", markersize=5, alpha=0.7)
        right.plot([], [], f"C{i}o", label=label)
    spread = float(np.mean([row["return_std"] for row in rows]))
    left.axhline(DIVERGED * spread, color="0.5", linestyle="--", label="counted as diverged")
    left.axhline(spread, color="0.7", linestyle=":", label="standard deviation of the return")
    left.set(yscale="log", ylabel="error of the mean after learning", title="error of the mean")
    right.axhline(end, color="0.7", linestyle=":")
    right.set(ylabel="step", ylim=(0, 1.25 * end), title="where it diverges")
    right.set_yticks([*np.linspace(0, end, 5), never], [*(f"{step:,.0f}" for step in np.linspace(0, end, 5)), "never"])
    for axes in (left, right):
        axes.set_xticks(range(len(stds)), [f"{std:g}" for std in stds])
        axes.set_xlabel("noise of the behaviour policy (target: 0.1)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def summarise(rows: list[dict[str, Any]], runs: int) -> str:
    spread = float(np.mean([row["return_std"] for row in rows]))
    lines = [
        "# Reacher off-policy: where it works",
        "",
        f"{runs} runs of {SETTINGS['learning_steps']:,} steps for each behaviour. The target policy has noise"
        f" {SETTINGS['target_std']}. The error is that of the mean of the quantiles along the target policy's stream, whose"
        f" return has a standard deviation of {spread:.2f}. A mean {DIVERGED:g} standard deviations away has diverged. The"
        " effective share is (sum w)^2 / (n sum w^2) of the weights along the second half of the behaviour's stream.",
        "",
        "| behaviour | weight | error of the mean: median (range) | RMS, median | diverged | first at | effective share |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        errors, steps = row["error_of_mean"], [step for step in row["divergence_step"] if step is not None]
        lines.append(
            f"| {row['behaviour_std']:g} | {WEIGHTS[row['weight']]} | {np.median(errors):.3g}"
            f" ({min(errors):.2g} to {max(errors):.2g}) | {np.median(row['rms_error']):.3g} | {len(steps)} of {runs} |"
            f" {f'{min(steps):,}' if steps else '-'} | {np.median(row['effective_share']):.3f} |"
        )
    return "\n".join([*lines, "", *findings(rows)]) + "\n"


def findings(rows: list[dict[str, Any]]) -> list[str]:
    """One line for each weight: the behaviours of which no run diverges, and those where the mean is learnt."""
    lines = []
    for weight, label in WEIGHTS.items():
        mine = [row for row in rows if row["weight"] == weight]
        stable = [row for row in mine if all(step is None for step in row["divergence_step"])]
        learnt = [row for row in stable if np.median(row["error_of_mean"]) < 0.5 * np.mean(row["return_std"])]
        lines.append(
            f"- **{label}**: no run diverges for noise {_list(stable)}; the median error of the mean is below half a standard"
            f" deviation of the return for noise {_list(learnt)}."
        )
    return lines


def _list(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['behaviour_std']:g}" for row in rows) or "none"
