"""The layout of a run, from its costs."""

from dataclasses import replace

import pytest

from actors.layout import (
    CONTENTION,
    CROWDING,
    MAX_LAG,
    MIN_ENVS,
    SERIAL_OVERHEAD,
    SUM_LATENCY,
    SUM_SECONDS_PER_BYTE,
    Costs,
    Layout,
    choose_layout,
    predict,
)
from actors.resources import Resources

MS = 1e-3
PLAIN = Costs(rollout=0.82 * MS, update=0.90 * MS, bytes_per_update=6.8e6)
"""Of the Nature torso, on a core of an AMD EPYC."""
DISCOVERY = Costs(rollout=0.82 * MS, update=2.68 * MS, bytes_per_update=14e6)
SHALLOW = Costs(rollout=0.60 * MS, update=0.20 * MS, bytes_per_update=2.7e6)
ON_GPU = Costs(rollout=0.82 * MS, update=0.03 * MS, bytes_per_update=6.8e6)
SLOW_ON_GPU = Costs(rollout=0.82 * MS, update=0.82 * MS, bytes_per_update=1e6)


def automatic(make_config, **options):
    return make_config(**{"pool": "auto", "learners": 0, "unroll": 20, "frames": 10**6} | options)


@pytest.mark.parametrize(
    ("costs", "batch_size", "cores", "gpus", "expected"),
    [
        (PLAIN, 32, 1, 0, "1 learner x (1 core, 32 games, serial)"),
        (PLAIN, 32, 2, 0, "1 learner x (1 core, 1 actor with 32 games)"),
        (PLAIN, 32, 4, 0, "2 learners x (1 core, 1 actor with 16 games)"),
        (PLAIN, 32, 16, 0, "1 learner x (10 cores, 6 actors with 16 games)"),
        (PLAIN, 32, 64, 0, "4 learners x (13 cores, 3 actors with 10 games)"),
        (DISCOVERY, 8, 2, 0, "2 learners x (1 core, 16 games, serial)"),
        (DISCOVERY, 8, 4, 0, "1 learner x (3 cores, 1 actor with 16 games)"),
        (DISCOVERY, 8, 16, 0, "1 learner x (13 cores, 3 actors with 10 games)"),
        (SHALLOW, 32, 2, 0, "2 learners x (1 core, 16 games, serial)"),
        (SHALLOW, 32, 16, 0, "1 learner x (5 cores, 11 actors with 11 games)"),
        (ON_GPU, 32, 16, 1, "1 learner x (1 core, 15 actors with 8 games)"),
        (ON_GPU, 32, 64, 8, "1 learner x (1 core, 32 actors with 4 games)"),
        (SLOW_ON_GPU, 256, 512, 8, "8 learners x (1 core, 32 actors with 4 games)"),
    ],
)
def test_layouts_of_machines(make_config, costs, batch_size, cores, gpus, expected):
    assert choose_layout(automatic(make_config, batch_size=batch_size), costs, cores, gpus).describe() == expected


@pytest.mark.parametrize("costs", [PLAIN, DISCOVERY, SHALLOW])
@pytest.mark.parametrize("batch_size", [1, 4, 8, 32, 256])
@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_no_layout_crowds_the_cores_or_lags_too_far(make_config, costs, batch_size, in_flight):
    config = automatic(make_config, batch_size=batch_size, in_flight=in_flight)
    for cores in (1, 2, 3, 4, 7, 8, 16, 48, 64, 192):
        for gpus in (0, 1, 8):
            layout = choose_layout(config, costs, cores, gpus)
            each, batch = layout.resources, batch_size / layout.learners
            assert batch_size % layout.learners == 0
            assert layout.learners == 1 or batch >= MIN_ENVS
            if layout.pool == "serial":
                assert each.num_actors == each.envs_per_actor % batch == 0
                assert each.envs_per_actor / batch <= MAX_LAG
                assert layout.learners <= cores
            elif cores > 1:
                assert layout.learners * (each.num_actors + each.learner_threads) <= cores
                assert in_flight * each.num_actors * each.envs_per_actor / batch <= MAX_LAG


def test_what_the_user_sets_is_kept(make_config):
    chosen = choose_layout(automatic(make_config, batch_size=8, num_actors=10, learners=2, learner_threads=3), PLAIN, 64)
    assert (chosen.learners, chosen.pool) == (2, "ray")
    assert (chosen.resources.num_actors, chosen.resources.learner_threads) == (10, 3)
    assert choose_layout(automatic(make_config, batch_size=8, envs_per_actor=3), PLAIN, 64).resources.envs_per_actor == 3
    few = choose_layout(automatic(make_config, batch_size=8, envs_per_actor=3, pool="serial"), PLAIN, 64)
    assert (few.pool, few.resources.envs_per_actor) == ("serial", 3)
    assert choose_layout(automatic(make_config, batch_size=8, pool="ray"), PLAIN, 1).pool == "ray"
    assert choose_layout(automatic(make_config, batch_size=8, learners=8), PLAIN, 2).learners == 8


def test_serial_runs_have_one_learner_on_every_machine(make_config):
    config = automatic(make_config, batch_size=32, pool="serial")
    assert {choose_layout(config, PLAIN, cores) for cores in (1, 2, 64)} == {Layout(1, "serial", Resources(0, 32, 1))}


def test_threads_respect_omp_thread_limit(make_config, monkeypatch):
    monkeypatch.setenv("OMP_THREAD_LIMIT", "2")
    for options in ({}, {"learner_threads": 6}):
        config = automatic(make_config, batch_size=8, pool="ray", **options)
        assert choose_layout(config, DISCOVERY, 8).resources.learner_threads == 2


def test_predicted_speed_by_hand(make_config):
    """100 steps an update: 20 steps of 5 games."""
    config = automatic(make_config, batch_size=5)
    costs = Costs(rollout=1 * MS, update=3 * MS, bytes_per_update=1e6)
    serial = Layout(1, "serial", Resources(0, 5, 1))
    playing = 0.1 * SERIAL_OVERHEAD
    assert predict(serial, costs, config, cores=1).steps_per_second == pytest.approx(100 / (playing + 0.3))
    overlapped = Layout(1, "ray", Resources(1, 5, 1))
    assert predict(overlapped, costs, config, cores=2).steps_per_second == pytest.approx(1 / (3 * MS))
    five = Layout(5, "serial", Resources(0, 1, 1))
    exchange = 5 * SUM_LATENCY + SUM_SECONDS_PER_BYTE * 2 * 4 / 5 * 1e6
    assert predict(five, costs, config, cores=5).steps_per_second == pytest.approx(
        100 / (playing / 5 + CONTENTION * 0.06 + exchange)
    )
    crowded = Layout(1, "ray", Resources(4, 5, 1))
    assert predict(crowded, costs, config, cores=2).steps_per_second == pytest.approx(100 / 0.3)
    assert predict(crowded, replace(costs, rollout=5 * MS), config, cores=2).steps_per_second == pytest.approx(
        100 / (CROWDING * (0.5 + 0.3) / 2)
    )
    slower = replace(costs, step_overhead=10 * MS, update_overhead=50 * MS)
    assert predict(serial, slower, config, cores=1).steps_per_second == pytest.approx(
        100 / (playing * (1 + 10 / 5) + 0.3 + 0.05)
    )
    more_games = Layout(1, "serial", Resources(0, 20, 1))
    assert predict(more_games, slower, config, cores=1).steps_per_second == pytest.approx(
        100 / (playing * (1 + 10 / 20) + 0.3 + 0.05)
    )
    assert predict(overlapped, slower, config, cores=2).steps_per_second == pytest.approx(100 / 0.35)


def test_the_bottleneck_and_the_lag_are_predicted(make_config):
    config = automatic(make_config, batch_size=5, in_flight=2)
    learning, playing = Costs(rollout=1 * MS, update=3 * MS), Costs(rollout=3 * MS, update=1 * MS)
    one, four = Layout(1, "ray", Resources(1, 5, 1)), Layout(1, "ray", Resources(4, 10, 1))
    assert predict(one, learning, config, cores=9).bottleneck == "updates and sums"
    assert predict(one, playing, config, cores=9).bottleneck == "rollouts"
    assert predict(four, playing, config, cores=2).bottleneck == "cores"
    assert (predict(one, playing, config, 9).lag, predict(four, playing, config, 9).lag) == (2, 16)
    serial = Layout(1, "serial", Resources(0, 20, 1))
    assert predict(serial, playing, config, 1).lag == 3
    assert predict(serial, playing, config, 1).bottleneck == "rollouts"


def test_sums_over_a_network_cost_more(make_config):
    config, two = automatic(make_config, batch_size=8), Layout(2, "ray", Resources(2, 4, 1))
    costs = Costs(rollout=0.1 * MS, update=1 * MS, bytes_per_update=1e7)
    here, apart = (predict(two, costs, config, cores=8, cores_here=cores).seconds["updates and sums"] for cores in (8, 4))
    assert apart - here == pytest.approx(2 * (1e-3 - SUM_LATENCY) + (4e-9 - SUM_SECONDS_PER_BYTE) * 1e7)


def test_a_config_keeps_what_a_resumed_run_depends_on(make_config):
    config = automatic(make_config, batch_size=8)
    several = Layout(2, "serial", Resources(0, 16, 1)).applied_to(config)
    assert (several.learner.learners, several.actors.pool, several.actors.envs_per_actor) == (2, "serial", 16)
    assert choose_layout(several, SHALLOW, 64) == Layout(2, "serial", Resources(0, 16, 1))
    plain = Layout(1, "serial", Resources(0, 8, 1)).applied_to(config)
    assert (plain.learner.learners, plain.actors.pool, plain.actors.envs_per_actor) == (1, "serial", 0)
    actors = Layout(1, "ray", Resources(3, 16, 2)).applied_to(config)
    assert (actors.learner.learners, actors.actors.pool, actors.actors.envs_per_actor) == (1, "ray", 0)
