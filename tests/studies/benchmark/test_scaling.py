"""The model of throughput beside measured runs."""

import json

import pytest

from actors.layout import SERIAL_OVERHEAD, Costs
from studies.benchmark import scaling
from studies.benchmark.scaling import PAPER_FRAMES, Row, paper_cost, predict_machines

MS = 1e-3


def test_the_error_is_relative_to_what_was_measured():
    assert Row("a", predicted=90.0, bottleneck="", lag=0, measured=100.0).error == pytest.approx(-0.1)
    assert Row("a", predicted=90.0, bottleneck="", lag=0).error is None


def test_the_cost_of_the_papers_experiment_by_hand():
    """4 frames a step; 2 ms a step to play (half of it overhead shared by 16 games) and 3 ms to learn."""
    found = paper_cost(Costs(rollout=1 * MS, update=3 * MS, step_overhead=16 * MS), frames_per_step=4)
    steps = PAPER_FRAMES / 4
    assert found["core_hours"] == pytest.approx(steps * 5 * MS / 3600)
    assert found["actor_core_hours"] == pytest.approx(steps * 2 * MS / 3600)
    assert found["gpu_hours"] == pytest.approx(steps * 3 * MS / scaling.GPU_SPEED_UP / 3600)


def test_larger_machines_are_predicted_to_be_faster():
    speeds = [row.predicted for row in predict_machines("pong", Costs(0.8 * MS, 2.7 * MS, 1e7))]
    assert speeds == sorted(speeds)
    assert speeds[-1] > 4 * speeds[0]


@pytest.fixture
def trained(monkeypatch):
    """The configs that were measured, instead of measuring them."""
    configs = []
    found = {"frames_per_second": 1000.0, "policy/lag": 2.0}
    monkeypatch.setattr(scaling, "measure_training", lambda config, *_: configs.append(config) or found)
    monkeypatch.setattr(scaling, "measure_costs", lambda config: Costs(1 * MS, 2 * MS, 1e6))
    return configs


def layouts(configs):
    return [(config.task, config.learner.learners, config.actors.pool, config.actors.num_actors) for config in configs]


def test_every_configuration_is_measured_and_predicted(trained, tmp_path, capsys):
    result = scaling.main(["--out", str(tmp_path), "--game", "catch"])
    assert len(trained) == len(result["measured"]) == 11
    assert {("none", 1, "ray", 4), ("none", 2, "ray", 1), ("reverse_gvf", 2, "serial", 0)} <= set(layouts(trained))
    assert json.loads((tmp_path / "scaling.json").read_text()) == result
    first = result["measured"][0]
    assert first["predicted"] == pytest.approx(1000 / (SERIAL_OVERHEAD + 2))
    assert first["error"] == pytest.approx(1 / (SERIAL_OVERHEAD + 2) - 1)
    assert "rollouts" in capsys.readouterr().out


def test_a_cluster_has_the_layouts_with_actors_and_sums_over_the_network(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "measure_costs", lambda config: Costs(1 * MS, 2 * MS, bytes_per_update=1e8))
    result = scaling.main(["--out", str(tmp_path), "--game", "catch", "--ray-address", "10.77.0.1:6379"])
    none, discovery = [("none", 1, "ray", actors) for actors in (1, 2, 3, 4)], [("reverse_gvf", 1, "ray", 1)]
    assert layouts(trained) == [*none, ("none", 2, "ray", 1), *discovery]
    assert {config.actors.ray_address for config in trained} == {"10.77.0.1:6379"}
    here = scaling.main(["--out", str(tmp_path), "--game", "catch"])
    slower, faster = ([row["predicted"] for row in each["measured"] if "2 learners x (1 core, 1 actor" in row["name"]]
                      for each in (result, here))  # fmt: skip
    assert slower < faster
