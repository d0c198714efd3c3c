import pytest

from actors.resources import Resources
from agents.tasks import TASKS
from studies.benchmark.task_costs import MEMORY_INTERVALS, PERIODS, measure_memory, measure_tasks


def test_every_task_is_measured(make_config, never):
    costs = measure_tasks(make_config(meta_interval=2), Resources(num_actors=1, envs_per_actor=4, learner_threads=1), never)
    assert costs.keys() == TASKS.keys() | {f"reverse_gvf, M = {n} K" for n in PERIODS}
    assert all(cost > 0 for cost in costs.values())


@pytest.mark.slow
def test_peak_memory_is_measured_for_every_interval(make_config, never):
    peaks = measure_memory(make_config(), never)
    assert list(peaks) == [str(interval) for interval in MEMORY_INTERVALS]
    assert all(50 < peak < 5000 for peak in peaks.values())
