"""PageRank learnt from clicks: Reverse TD on-policy and off-policy, with three ranks from one stream.

Each rank is d v: the visiting distribution, estimated by counts, times the learnt Reverse GVF. Off-policy the counts are those
of the behaviour and are multiplied by the density ratio.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from configs.commands import ReproduceConfig
from configs.errors import ConfigError
from retrospective.finite_mdp import Array, FiniteMDP, density_ratio, importance_ratio, simulate
from retrospective.pagerank import Surfer, link_matrix, pagerank
from retrospective.reverse_td import DensityRatio, ReverseTD, RobbinsMonro
from studies.reproduce.experiment import Experiment, Settings, mean_and_error, require_extra, run_generator

SETTINGS: Settings = {
    "graphs": ["karate", "les_miserables", "web"],
    "web_pages": 60,
    "damping": 0.85,
    "target_jump": 0.05,
    "behaviour_jump": 0.15,
    "steps": 100_000,
    "logs": 20,
    "first_log": 500,
    "alpha": 0.1,
    "delay": 10_000.0,
    "power": 0.8,
}
RANKS = ("PageRank", "personalised", "topic")
ARMS = {
    "on-policy": "Reverse TD, on-policy",
    "known": "off-policy, tau known",
    "learnt": "off-policy, tau learnt",
    "rho": "off-policy, rho alone",
    "counts": "visits of a surfer who teleports",
}
OFF_POLICY = ("known", "learnt", "rho")
DEFAULT_RUNS = 10
CHUNK_RUNS = 5
"""Runs of every graph that are vectorised in one process."""


def reproduce_pagerank(config: ReproduceConfig, stop: threading.Event) -> str:
    """Write data.json, figure.png and summary.md; return the summary."""
    require_extra("streams", "pagerank", "networkx")
    runs, names = config.runs_or(DEFAULT_RUNS), SETTINGS["graphs"]
    graphs = {name: load_graph(name, SETTINGS) for name in names}
    experiment = Experiment(Path(config.out), SETTINGS | {"study": "pagerank", "seed": config.seed}, config.ray_address)
    data = experiment.collect(runs * len(names), CHUNK_RUNS * len(names), learn, "reproduce pagerank", stop)
    errors = {
        name: {arm: np.array([run["errors"][arm] for run in data[i :: len(names)]], dtype=float) for arm in ARMS}
        for i, name in enumerate(names)
    }  # [runs, logs, ranks]
    closed = closed_form_errors(SETTINGS)
    draw(graphs, errors, [data[i]["found"] for i in range(len(names))], experiment.out / "figure.png")
    record: dict[str, Any] = {"runs": runs, "steps": log_steps(SETTINGS), "ranks": RANKS, "closed_form_errors": closed}
    for name, of_arm in errors.items():
        moments = {arm: mean_and_error(samples) for arm, samples in of_arm.items()}
        record[name] = {
            arm: {"mean": mean.tolist(), "standard_error": error.tolist()} for arm, (mean, error) in moments.items()
        }
    experiment.write_json("data.json", record)
    summary = summarise(graphs, errors, closed, runs)
    experiment.write_text("summary.md", summary)
    return summary


def load_graph(name: str, settings: Settings) -> tuple[Array, Array]:
    """Adjacency [N, N] and the teleport distributions of the three ranks [3, N].

    Personalised: the first page of the graph, Valjean in Les Miserables. Topic: the officer's club in karate, the characters
    next to Gavroche in Les Miserables, the last ten pages of the web.
    """
    import networkx as nx

    if name == "karate":
        graph = nx.karate_club_graph()
        page, topic = 0, [graph.nodes[node]["club"] == "Officer" for node in graph]
    elif name == "les_miserables":
        graph = nx.les_miserables_graph()
        page, topic = list(graph).index("Valjean"), [node in graph["Gavroche"] for node in graph]
    elif name == "web":
        graph = nx.DiGraph(nx.scale_free_graph(settings["web_pages"], seed=0))
        page, topic = 0, [i >= len(graph) - 10 for i in range(len(graph))]
    else:
        raise ConfigError(f"unknown graph {name!r}; there is karate, les_miserables, web")
    count = len(graph)
    weights = np.stack([np.ones(count), np.eye(count)[page], np.array(topic, dtype=np.float64)])
    return nx.to_numpy_array(graph), weights / weights.sum(-1, keepdims=True)


def closed_form_errors(settings: Settings) -> dict[str, float]:
    """Largest difference between the closed form and networkx.pagerank, over the pages of each bundled graph."""
    import networkx as nx

    graphs = {
        "karate club": nx.karate_club_graph(),
        "Davis's southern women": nx.davis_southern_women_graph(),
        "Florentine families": nx.florentine_families_graph(),
        "Les Miserables": nx.les_miserables_graph(),
        "Krackhardt's kite": nx.krackhardt_kite_graph(),
        "a scale-free web": nx.DiGraph(nx.scale_free_graph(settings["web_pages"], seed=0)),
    }
    found = {}
    for name, graph in graphs.items():
        reference = nx.pagerank(graph, settings["damping"], tol=1e-15, max_iter=10_000)
        exact = pagerank(nx.to_numpy_array(graph), settings["damping"])
        found[name] = float(np.abs(exact - [reference[node] for node in graph]).max())
    return found


def log_steps(settings: Settings) -> list[int]:
    """Steps at which errors are recorded, spaced logarithmically."""
    return [int(step) for step in np.geomspace(settings["first_log"], settings["steps"], settings["logs"]).round()]


def learn(settings: Settings, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Run n has graph n mod G and seed n div G, where G counts the graphs, so more seeds append runs."""
    names = settings["graphs"]
    made: dict[int, dict[str, Any]] = {}
    for i, name in enumerate(names):
        mine = [number for number in numbers if number % len(names) == i]
        if mine:
            seeds = [number // len(names) for number in mine]
            made |= dict(zip(mine, learn_graph(settings, name, seeds), strict=True))
    return [made[number] for number in numbers]


def learn_graph(settings: Settings, name: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Errors of every arm for each seed, and the ranks found in the end."""
    adjacency, teleports = load_graph(name, settings)
    damping, anywhere = settings["damping"], np.ones(len(adjacency))
    exact = np.stack([pagerank(adjacency, damping, weights, dangling=anywhere) for weights in teleports])
    target = Surfer(link_matrix(adjacency), settings["target_jump"])
    popular = adjacency * (1 + adjacency.sum(0))  # The behaviour prefers pages with many links to them.
    behaviour = Surfer(link_matrix(popular), settings["behaviour_jump"])
    mdps = [target.mdp(damping, weights) for weights in teleports]
    streams = [
        (_on_policy, target.policy),
        (_off_policy, behaviour.policy),
        (_counts, Surfer(target.links, 1 - damping).policy),
    ]
    ranks: dict[str, list[Array]] = {arm: [] for arm in ARMS}
    for kind, (follow, policy) in enumerate(streams):
        rngs = [run_generator(settings["seed"], 3 * seed + kind) for seed in seeds]
        for found in follow(settings, mdps, target.policy, policy, rngs):
            for arm, rank in found.items():
                ranks[arm].append(rank)
    errors = {arm: np.abs(np.array(history) - exact).sum(-1) for arm, history in ranks.items()}  # [logs, seeds, ranks]
    errors["counts"][..., 1:] = np.nan  # Its visits are PageRank and no other rank.
    return [
        {
            "errors": {arm: _rounded(errors[arm][:, i]) for arm in ARMS},
            "found": {arm: _rounded(ranks[arm][-1][i]) for arm in ARMS},
        }
        for i in range(len(seeds))
    ]


def _rounded(values: Array) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(f"{value:.5g}") for value in row] for row in values]


Found = Iterator[dict[str, Array]]
"""At each logged step the ranks [seeds, ranks, N] of some arms."""


def _step_size(settings: Settings) -> RobbinsMonro:
    return RobbinsMonro(settings["alpha"], settings["delay"], settings["power"])


def _on_policy(settings: Settings, mdps: list[FiniteMDP], target: Array, policy: Array, rngs: Sequence[Any]) -> Found:
    pages = np.eye(mdps[0].num_states)
    learner = ReverseTD(np.zeros((len(rngs), len(mdps), len(pages))), _step_size(settings))
    visits, logs = np.zeros((len(rngs), len(pages))), set(log_steps(settings))
    reward, discount = np.stack([mdp.reward[0] for mdp in mdps]), mdps[0].discount[0]  # They do not depend on s.
    for step, (s, a, t) in enumerate(simulate(mdps[0], policy, rngs, settings["steps"]), start=1):
        learner.update(pages[s][:, None], pages[t][:, None], reward[:, a, t].T, discount[a, t][:, None])
        visits += pages[t]
        if step in logs:
            yield {"on-policy": visits[:, None] / step * learner.weights}


def _off_policy(settings: Settings, mdps: list[FiniteMDP], target: Array, policy: Array, rngs: Sequence[Any]) -> Found:
    pages = np.eye(mdps[0].num_states)
    rho, known = importance_ratio(mdps[0], target, policy), density_ratio(mdps[0], target, policy)
    tau = DensityRatio(len(pages), _step_size(settings), (len(rngs),))
    learner = ReverseTD(np.zeros((len(rngs), len(OFF_POLICY), len(mdps), len(pages))), _step_size(settings))
    visits, logs = np.zeros((len(rngs), len(pages))), set(log_steps(settings))
    reward, discount = np.stack([mdp.reward[0] for mdp in mdps]), mdps[0].discount[0]  # They do not depend on s.
    for step, (s, a, t) in enumerate(simulate(mdps[0], policy, rngs, settings["steps"]), start=1):
        x_s, x_t = pages[s], pages[t]
        ratio = rho[s, a]
        weight = np.stack([known[s] * ratio, tau(x_s) * ratio, ratio], axis=-1)
        learner.update(
            x_s[:, None, None], x_t[:, None, None], reward[:, a, t].T[:, None], discount[a, t][:, None, None], weight[..., None]
        )
        tau.update(x_s, x_t, ratio)
        visits += x_t
        if step in logs:
            ratios = np.stack([np.broadcast_to(known, visits.shape), np.maximum(tau.weights, 0), np.ones_like(visits)], axis=1)
            found = (visits[:, None] / step * ratios)[:, :, None] * learner.weights
            yield {arm: found[:, i] for i, arm in enumerate(OFF_POLICY)}


def _counts(settings: Settings, mdps: list[FiniteMDP], target: Array, policy: Array, rngs: Sequence[Any]) -> Found:
    pages, logs = np.eye(mdps[0].num_states), set(log_steps(settings))
    visits = np.zeros((len(rngs), len(pages)))
    for step, (_, _, t) in enumerate(simulate(mdps[0], policy, rngs, settings["steps"]), start=1):
        visits += pages[t]
        if step in logs:
            yield {"counts": np.repeat(visits[:, None] / step, len(mdps), axis=1)}


def draw(
    graphs: dict[str, tuple[Array, Array]],
    errors: dict[str, dict[str, Array]],
    found: list[dict[str, list[list[float]]]],
    path: Path,
) -> None:
    figure = Figure(figsize=(4.3 * len(graphs), 8), layout="constrained")
    upper, lower = figure.subplots(2, len(graphs), squeeze=False)
    steps = log_steps(SETTINGS)
    for i, (name, (adjacency, teleports)) in enumerate(graphs.items()):
        for arm, label in ARMS.items():
            mean, error = mean_and_error(errors[name][arm][..., 0])
            upper[i].plot(steps, mean, label=label, linestyle=":" if arm == "counts" else "-")
            upper[i].fill_between(steps, mean - error, mean + error, alpha=0.25)
        upper[i].set(title=f"{name}: {len(adjacency)} pages", xscale="log", yscale="log", xlabel="clicks and jumps")
        for j, rank in enumerate(RANKS):
            exact = pagerank(adjacency, SETTINGS["damping"], teleports[j], dangling=np.ones(len(adjacency)))
            lower[i].plot(exact, found[i]["learnt"][j], f"C{j}o", markersize=4, alpha=0.7, label=rank)
        lower[i].axline((1e-3, 1e-3), slope=1, color="0.6", linewidth=1)
        lower[i].set(xscale="log", yscale="log", xlabel="exact rank", title=f"{name}: one stream, three ranks")
        for axes in (upper[i], lower[i]):
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
    upper[0].set_ylabel("PageRank: sum of absolute errors")
    lower[0].set_ylabel("rank learnt off-policy with tau learnt (first run)")
    figure.savefig(path, dpi=100)


def summarise(
    graphs: dict[str, tuple[Array, Array]], errors: dict[str, dict[str, Array]], closed: dict[str, float], runs: int
) -> str:
    lines = [
        "# PageRank is a Reverse GVF",
        "",
        f"Damping {SETTINGS['damping']:g}. Largest difference between the closed form and `networkx.pagerank`:",
        "",
        "| graph | difference |",
        "| --- | --- |",
        *(f"| {name} | {error:.0e} |" for name, error in closed.items()),
        "",
        f"The closed form **{'agrees' if max(closed.values()) < 1e-10 else 'does not agree'}** to 1e-10.",
        "",
        f"{runs} runs of {SETTINGS['steps']:,} clicks and jumps. The target surfer clicks any link as likely and jumps with"
        f" probability {SETTINGS['target_jump']:g}; the behaviour prefers popular pages and jumps with probability"
        f" {SETTINGS['behaviour_jump']:g}. Sum of absolute errors of a rank, which adds up to 1, in the end:",
        "",
        "| graph | arm | " + " | ".join(RANKS) + " |",
        "| --- | --- |" + " --- |" * len(RANKS),
    ]
    verdicts = []
    for name in graphs:
        final = {arm: errors[name][arm][:, -1] for arm in ARMS}
        for arm, label in ARMS.items():
            mean, error = mean_and_error(final[arm])
            cells = ["-" if np.isnan(m) else f"{m:.4f} +- {e:.4f}" for m, e in zip(mean, error, strict=True)]
            lines.append(f"| {name} | {label} | {' | '.join(cells)} |")
        gains = {arm: mean_and_error(final["rho"][:, 0] - final[arm][:, 0]) for arm in ("known", "learnt")}
        better = [arm for arm, (gain, error) in gains.items() if gain > 2 * error]
        simple = mean_and_error(final["on-policy"][:, 0] - final["counts"][:, 0])
        verdicts.append(
            f"- {name}: off-policy the error of PageRank is below that of rho alone with tau {' and '.join(better) or 'never'};"
            f" counting the visits of a surfer who teleports has an error {'smaller' if simple[0] > 0 else 'larger'} than"
            f" on-policy Reverse TD by {abs(simple[0]):.4f} +- {simple[1]:.4f}."
        )
    return "\n".join([*lines, "", *verdicts]) + "\n"
