import pytest

from actors.resources import Resources
from agents.tasks import TASKS
from configs.commands import BenchmarkConfig
from configs.errors import ConfigError
from studies.benchmark.task_costs import MEMORY_INTERVALS, PERIODS, measure_memory, measure_tasks

RESOURCES = Resources(num_actors=1, envs_per_actor=4, learner_threads=1)


def test_every_task_is_measured(make_config, never):
    costs = measure_tasks(make_config(meta_interval=2), list(TASKS), RESOURCES, never)
    assert costs.keys() == TASKS.keys() | {f"reverse_gvf, M = {n} K" for n in PERIODS}
    assert all(cost > 0 for cost in costs.values())


def test_only_the_tasks_named_are_measured(make_config, never):
    assert list(measure_tasks(make_config(), ["random_gvf"], RESOURCES, never)) == ["random_gvf"]
    assert BenchmarkConfig().measured_tasks == tuple(TASKS)
    assert BenchmarkConfig(only=("gvf",)).measured_tasks == ("gvf",)
    assert BenchmarkConfig(tasks=False).measured_tasks == ()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"only": ("reverse_gfv",)}, "--only: unknown task 'reverse_gfv'; did you mean reverse_gvf"),
        ({"only": ("gvf",), "tasks": False}, "--only has no effect with --no-tasks"),
        ({"only": ("gvf",), "data_plane": True}, "--only has no effect with --data-plane"),
    ],
)
def test_tasks_that_cannot_be_measured_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        BenchmarkConfig(**settings)


@pytest.mark.slow
def test_peak_memory_is_measured_for_every_interval(make_config, never):
    peaks = measure_memory(make_config(), never)
    assert list(peaks) == [str(interval) for interval in MEMORY_INTERVALS]
    assert all(50 < peak < 5000 for peak in peaks.values())
