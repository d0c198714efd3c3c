"""The discovery study in short form, and what it rests on: stopped gradients stop, an untrained torso stays untrained."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from configs.commands import ReproduceConfig
from envs.grid_games import GRIDS, Grid, collect_objects
from studies.reproduce import discovery as reproduce_discovery
from studies.reproduce.discovery_figures import position_map
from studies.reproduce.discovery_run import AGENTS, agent_config, run_agent
from studies.reproduce.exact_answers import exact_answers
from studies.reproduce.run_store import RunStore

SMALL = {"unroll": 10, "batch_size": 4, "num_questions": 4, "meta_interval": 2}


@pytest.mark.parametrize("agent", AGENTS)
def test_which_losses_train_the_torso(agent):
    """The task does; the main task only in impala, so that without a task's weight nothing moves."""
    silent = {"answer_weight": 0.0, "reward_prediction_weight": 0.0, "pixel_control_weight": 0.0}
    taught = run_agent(agent_config("puddleworld", agent, 1, 200, SMALL), 2)
    untaught = run_agent(agent_config("puddleworld", agent, 1, 200, SMALL | silent), 2)
    assert (taught["torso_moved"] > 0) == (agent != "untrained")
    assert (untaught["torso_moved"] > 0) == (agent == "impala")


def test_question_maps_before_and_after_training():
    made = run_agent(agent_config("collect_objects", "reverse_gvf", 1, 400, SMALL | {"meta_learning_rate": 0.01}), 2, maps=True)
    before, after = made["questions"]["before"], made["questions"]["after"]
    assert np.array(after["cumulant"]).shape == (len(collect_objects().cells), 4)
    assert 0 <= np.array(after["discount"]).min() <= np.array(after["discount"]).max() <= 1
    assert not np.allclose(before["cumulant"], after["cumulant"])
    fixed = run_agent(agent_config("collect_objects", "random_reverse_gvf", 1, 400, SMALL), 2, maps=True)["questions"]
    assert fixed["before"]["cumulant"] == fixed["after"]["cumulant"]
    assert fixed["before"]["answer"] != fixed["after"]["answer"]


NO_LIMIT = 10**12


@pytest.mark.parametrize(("limit", "moved_to_1"), [(NO_LIMIT, 1 / 2), (2, 1 / 3)])
def test_exact_answers_by_hand(limit, moved_to_1):
    """A corridor 0, 1, 2 in which games begin at 0 or 1, as often, and end at 2: nothing of one game reaches the next.

    Without a limit half of the visits to 1 come from 0, the others open a game. If every second step is cut off,
    d(0) = (d(0) + d(1))/4 + d(2)/2 and d(2) = d(1)/2, so d(0) = 2/3 d(1), and half of that moves to 1.
    """
    column = np.array([[1], [2], [2]])
    nothing = np.zeros((3, 1))
    ends = np.array([[False], [True], [False]])
    grid = Grid(
        column, nothing, ends, np.zeros((3, 1, 1, 1), np.uint8), np.array([0, 1]), np.zeros((3, 2), int), nothing[:, 0], limit
    )
    c, g = np.array([0.5, -0.4, 0.8]), np.array([0.9, 0.6, 0.3])
    follows, came_before = exact_answers(grid, np.ones((3, 1)), c, g)
    end = c[2] * (1 - g[2])
    assert np.allclose(follows, [c[1] * (1 - g[1]) + g[1] * end, end, 0.0])
    halfway = moved_to_1 * c[1] * (1 - g[0])
    assert np.allclose(came_before, [0.0, halfway, c[2] * (1 - g[1]) + g[1] * halfway])


def test_exact_answers_of_a_policy_that_never_ends_a_game():
    grid, rng = collect_objects(), np.random.default_rng(0)
    states, actions = grid.next_state.shape
    stuck = np.full((states, actions), 1e-9)
    stuck[:, 0] = 1 - 1e-9 * (actions - 1)
    cumulant, discount = rng.uniform(-1, 1, states), rng.uniform(0.2, 0.95, states)
    for answers in exact_answers(grid, stuck, cumulant, discount):
        assert np.abs(answers).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("game", ["collect_objects", "puddleworld"])
def test_exact_answers_are_the_means_of_simulated_returns(game):
    """Games played from their tables, with returns summed up by the definitions of the two tasks."""
    grid, rng = dataclasses.replace(GRIDS[game](), time_limit=NO_LIMIT), np.random.default_rng(0)
    states, actions = grid.next_state.shape
    policy = rng.dirichlet(np.ones(actions), states)
    cumulant, discount = rng.uniform(-1, 1, states), rng.uniform(0.2, 0.95, states)
    follows, came_before = exact_answers(grid, policy, cumulant, discount)
    sums = np.zeros((2, states))
    counts = np.zeros((2, states))
    for _ in range(600):
        s, over = rng.choice(grid.initial_states), False
        path = [s]
        while not over:
            a = rng.choice(actions, p=policy[s])
            over, s = grid.terminal[s, a], grid.next_state[s, a]
            path.append(s)
        assert over
        steps, g = list(itertools.pairwise(path)), 0.0
        for before, after in reversed(steps):
            g = cumulant[after] * (1 - discount[after]) + discount[after] * g
            sums[0, before] += g
            counts[0, before] += 1
        g = 0.0
        counts[1, path[0]] += 1
        for before, after in steps:
            g = cumulant[after] * (1 - discount[before]) + discount[before] * g
            sums[1, after] += g
            counts[1, after] += 1
    often = counts.min(0) > 300
    assert often.sum() > 20
    found = sums[:, often] / counts[:, often]
    assert np.corrcoef(found[0], follows[often])[0, 1] > 0.97
    assert np.corrcoef(found[1], came_before[often])[0, 1] > 0.97
    assert np.abs(found - np.stack([follows, came_before])[:, often]).mean() < 0.03


def test_a_curve_has_a_score_at_every_point():
    made = run_agent(agent_config("collect_objects", "untrained", 1, 800, SMALL), 20)
    assert len(made["scores"]) == 20
    assert np.isfinite(made["scores"]).all()
    assert max(made["scores"]) <= 1


def test_position_maps_place_phases_side_by_side():
    grid = collect_objects()
    image = position_map(grid, np.arange(len(grid.cells), dtype=float))
    assert np.isfinite(image).sum() == len(grid.cells)
    state = 100
    row, column = grid.cells[state]
    assert image[row, column + grid.phases[state] * image.shape[1] // 2] == state


def test_each_measure_has_its_own_conclusion():
    """Random questions fall short everywhere; then on one domain they end ahead."""
    rng = np.random.default_rng(0)
    curves = {}
    for game in reproduce_discovery.SETTINGS["frames"]:
        for agent in AGENTS:
            late = 0.3 if "random" in agent else 0.0
            curves[game, agent, ""] = np.linspace(-1, 0, 40).clip(max=-late).repeat(10).reshape(40, 10).T.copy()
            curves[game, agent, ""] += rng.normal(0, 0.001, (10, 1))
    sensitive = reproduce_discovery.SETTINGS["sensitivity_game"], reproduce_discovery.SETTINGS["sensitivity_agent"]
    curves |= {(*sensitive, variant): curves[*sensitive, ""] for variant in reproduce_discovery.SENSITIVITIES}
    for game in reproduce_discovery.SETTINGS["frames"]:
        curves |= {(game, sensitive[1], period): curves[game, sensitive[1], ""] for period in reproduce_discovery.PERIODS}
    summary = reproduce_discovery.summarise(curves, 10)
    assert summary.count("**holds**") == 2
    assert summary.count("for 10 of 10.") == 8
    assert "Seed by seed it is higher by 0.26" in summary  # 0.3 less the 1.5 of 39 steps by which they end short on average
    for agent in ("random_gvf", "random_reverse_gvf"):
        curves["puddleworld", agent, ""][:, -4:] = 0.0
    summary = reproduce_discovery.summarise(curves, 10)
    assert "by the mean score over the run **holds**" in summary
    assert "by the score at the end **does not hold**" in summary


@pytest.mark.slow
def test_the_study_end_to_end_and_extended_by_seeds(tmp_path, monkeypatch, never):
    monkeypatch.setitem(reproduce_discovery.SETTINGS, "frames", dict.fromkeys(GRIDS, 160))
    monkeypatch.setitem(reproduce_discovery.SETTINGS, "points", 4)
    monkeypatch.setitem(reproduce_discovery.SETTINGS, "common", SMALL)
    monkeypatch.setattr(reproduce_discovery, "AGENTS", AGENTS[:4])
    monkeypatch.setattr(reproduce_discovery, "SENSITIVITIES", {"first order": {"meta_gradient": "first_order"}})
    monkeypatch.setattr(reproduce_discovery, "PERIODS", {"M = 2 K": {"meta_period": 4}})
    summary = reproduce_discovery.reproduce_discovery(ReproduceConfig(out=str(tmp_path), runs=2), never)
    assert summary == (tmp_path / "summary.md").read_text()
    assert "Probability that reverse_gvf exceeds random_reverse_gvf" in summary
    assert "| first order |" in summary
    data = json.loads((tmp_path / "data.json").read_text())
    assert len(data["rows"]) == 2 * 4 + 1 + 2
    assert all(f"| {game} | M = 2 K |" in summary for game in GRIDS)
    assert all(len(row["areas"]) == 2 for row in data["rows"])
    assert data["optimal_scores"]["collect_objects"] == pytest.approx(collect_objects().optimal_score)
    for figure in ("figure", "questions_collect_objects_gvf", "both_ways_puddleworld_reverse_gvf"):
        assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    kept = RunStore(tmp_path).read()
    reproduce_discovery.reproduce_discovery(ReproduceConfig(out=str(tmp_path), runs=3), never)
    assert kept.items() <= RunStore(tmp_path).read().items()
    assert all(len(row["areas"]) == 3 for row in json.loads((tmp_path / "data.json").read_text())["rows"])
