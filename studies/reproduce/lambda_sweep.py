"""The paper's figure 2: Reverse TD(lambda) on the microdrone for several lambdas and step sizes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from configs.commands import ReproduceConfig
from retrospective.finite_mdp import simulate
from retrospective.microdrone import clockwise_policy, microdrone
from retrospective.reverse_td import Constant, ReverseTD
from studies.reproduce.experiment import PAPER_RUNS, Experiment, Settings, mean_and_error, run_generator

SETTINGS: Settings = {
    "clockwise": 0.5,
    "lambdas": [0.0, 0.3, 0.7, 0.9, 1.0],
    "alphas": [1e-3, 5e-3, 1e-2, 5e-2],
    "steps": 50_000,
    "log_steps": 1_000,
}
CHUNK = 15
"""Runs that are vectorised in one process."""


def reproduce_lambda(config: ReproduceConfig, stop: threading.Event) -> str:
    """Write data.json, figure.png and summary.md; return the summary."""
    runs = config.runs_or(PAPER_RUNS)
    experiment = Experiment(Path(config.out), SETTINGS | {"study": "lambda", "seed": config.seed}, config.ray_address)
    data = experiment.collect(runs, CHUNK, learn, "reproduce lambda", stop)
    errors = np.array([run["errors"] for run in data])  # [runs, lambdas, alphas, logs]
    choices = {"area under the curve": errors.mean((0, 3)).argmin(-1), "final error": errors[..., -1].mean(0).argmin(-1)}
    curves = {
        name: [errors[:, i, alpha] for i, alpha in enumerate(best)] for name, best in choices.items()
    }  # Each [runs, logs].
    frames = np.arange(1, errors.shape[-1] + 1) * SETTINGS["log_steps"]
    draw(curves, choices, frames, experiment.out / "figure.png")
    summary = summarise(curves, choices, runs)
    experiment.write_json(
        "data.json",
        {
            "lambdas": SETTINGS["lambdas"],
            "alphas": SETTINGS["alphas"],
            "steps": frames.tolist(),
            "norm_mean": errors.mean(0).tolist(),
            "norm_standard_error": mean_and_error(errors)[1].tolist(),
            "squared_norm_mean": (errors**2).mean(0).tolist(),
            "squared_norm_standard_error": mean_and_error(errors**2)[1].tolist(),
            "runs": runs,
        },
    )
    experiment.write_text("summary.md", summary)
    return summary


def learn(settings: Settings, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Errors of the value for every lambda and step size, all learnt from the same stream in each run."""
    mdp, policy = microdrone(), clockwise_policy(settings["clockwise"])
    exact = mdp.reverse_gvf(policy)
    lambdas, alphas = np.array(settings["lambdas"]), np.array(settings["alphas"])
    shape = (len(numbers), len(lambdas), len(alphas))
    learner = ReverseTD(np.zeros((*shape, mdp.num_states)), Constant(alphas), lambdas[:, None])
    x, errors = np.eye(mdp.num_states), []
    rngs = [run_generator(settings["seed"], number) for number in numbers]
    for step, (s, a, t) in enumerate(simulate(mdp, policy, rngs, settings["steps"]), start=1):
        reward, discount = (values[s, a, t][:, None, None] for values in (mdp.reward, mdp.discount))
        learner.update(x[s][:, None, None], x[t][:, None, None], reward, discount)
        if step % settings["log_steps"] == 0:
            errors.append(np.linalg.norm(learner.weights - exact, axis=-1))
    return [{"errors": run.tolist()} for run in np.stack(errors, axis=-1)]


def draw(curves: dict[str, list[np.ndarray]], choices: dict[str, np.ndarray], steps: np.ndarray, path: Path) -> None:
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, (name, of_lambda) in zip(figure.subplots(1, 2, sharey=True), curves.items(), strict=True):
        for i, runs in enumerate(of_lambda):
            mean, error = mean_and_error(runs)
            alpha = SETTINGS["alphas"][choices[name][i]]
            axes.plot(steps, mean, label=f"lambda {SETTINGS['lambdas'][i]:g} (alpha {alpha:g})")
            axes.fill_between(steps, mean - error, mean + error, alpha=0.25)
        axes.set(title=f"step size by least {name}", xlabel="step", ylim=(0, 4))
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("norm of the error of the value")
    figure.savefig(path, dpi=120)


def summarise(curves: dict[str, list[np.ndarray]], choices: dict[str, np.ndarray], runs: int) -> str:
    lines = ["# Figure 2: lambda", "", f"{runs} runs of {SETTINGS['steps']:,} steps on the microdrone, on-policy.", ""]
    holds = []
    for name, of_lambda in curves.items():
        score = (lambda x: x.mean(-1)) if name == "area under the curve" else (lambda x: x[:, -1])
        lines += [f"Step size chosen by least {name}:", "", "| lambda | alpha | mean norm of the error | standard error |"]
        lines += ["| --- | --- | --- | --- |"]
        means = []
        for i, data in enumerate(of_lambda):
            mean, error = mean_and_error(score(data))
            means.append(mean)
            alpha = SETTINGS["alphas"][choices[name][i]]
            lines.append(f"| {SETTINGS['lambdas'][i]:g} | {alpha:g} | {mean:.4f} | {error:.4f} |")
        best = int(np.argmin(means))
        difference, spread = mean_and_error(score(of_lambda[-1]) - score(of_lambda[best]))
        holds.append(best < 2 and difference > 2 * spread)
        lines += ["", f"Best: lambda {SETTINGS['lambdas'][best]:g}. Lambda 1 is worse by {difference:.4f} +- {spread:.4f}.", ""]
    verdict = "holds" if all(holds) else "does not hold"
    lines.append(f"The paper's finding, that the smaller lambdas do best, **{verdict}** for both choices of step size.")
    return "\n".join(lines) + "\n"
