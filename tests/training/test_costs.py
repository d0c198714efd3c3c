"""Costs of a run, and when they are measured."""

import pytest
import torch

from actors.layout import Costs
from training import costs as costs_module
from training.costs import layout_for, measure_costs


@pytest.mark.parametrize("task", ["none", "reverse_gvf"])
def test_costs_are_measured_by_a_rollout_and_an_update(make_config, task):
    found = measure_costs(make_config(task=task, batch_size=4))
    assert 0 < found.rollout_of(4) < 1
    assert 0 < 20 * found.update + found.update_overhead < 10
    assert found.bytes_per_update > 4 * 100_000


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((4, 9.0), (16, 21.0), (5.0, 1.0)),  # 5 + x
        ((16, 21.0), (16, 21.0), (0.0, 21 / 16)),
        ((4, 30.0), (16, 21.0), (21.0, 0.0)),  # Noise: more games cannot cost less.
        ((4, 1.0), (16, 16.0), (0.0, 1.0)),
    ],
)
def test_costs_are_an_overhead_and_a_part_in_proportion(first, second, expected):
    assert costs_module._line(first, second) == pytest.approx(expected)


def test_a_longer_period_makes_updates_and_sums_cheaper(make_config):
    often = measure_costs(make_config(task="reverse_gvf", batch_size=4, meta_interval=2))
    seldom = measure_costs(make_config(task="reverse_gvf", batch_size=4, meta_interval=2, meta_period=8))
    assert seldom.bytes_per_update < often.bytes_per_update


def test_nothing_is_measured_where_costs_do_not_matter(make_config):
    for options in ({"pool": "serial"}, {"pool": "auto", "learners": 1, "num_actors": 2, "learner_threads": 1}):
        layout_for(make_config(**options), cores=8, measure=pytest.fail)


def test_costs_decide_between_learners_with_threads_and_with_actors(make_config):
    config = make_config(pool="ray", batch_size=32, unroll=20, frames=10**6)
    playing = layout_for(config, 16, lambda _: Costs(rollout=1e-3, update=1e-4)).resources
    learning = layout_for(config, 16, lambda _: Costs(rollout=1e-4, update=1e-3)).resources
    assert playing.num_actors > learning.num_actors
    assert playing.learner_threads < learning.learner_threads


def test_gpus_count_if_the_learner_uses_them(make_config, monkeypatch):
    monkeypatch.setattr(costs_module, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    config = make_config(pool="auto", learners=0, batch_size=256, unroll=20, frames=10**6)
    layout = layout_for(config, 256, lambda _: Costs(rollout=1e-3, update=1e-3))
    assert (layout.learners, layout.pool) == (4, "ray")
