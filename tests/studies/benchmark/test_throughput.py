"""The benchmark: in a very short form, and when it is stopped."""

import signal
import time

import psutil
import pytest

from configs.commands import BenchmarkConfig
from studies.benchmark import throughput as benchmark
from tests.faults.test_ways_out import send
from tests.helpers.running import is_gone, rollout_actors, start_command, wait_until


@pytest.mark.slow
def test_every_part_is_measured(monkeypatch, never, capsys):
    """With batches smaller than a trajectory, so that some updates need nothing new of the actors."""
    monkeypatch.setattr(benchmark, "WARM_UP_SECONDS", 0.2)
    config = BenchmarkConfig(game="catch", torso="shallow", unroll=5, batch_size=4, seconds=1.0, tasks=False)
    result = benchmark.run_benchmark(config, never)
    for name in ("", "ceiling_", "env_", "inference_", "learner_"):
        assert result[f"{name}frames_per_second"] > 0
    assert result["efficiency"] == result["frames_per_second"] / result["ceiling_frames_per_second"]
    assert 0 < result["collate_share"] < 1
    assert result["training"].keys() >= {"wait", "collate", "learn", "publish", "actor_env", "actor_inference"}
    benchmark.print_table(result)
    assert "efficiency" in capsys.readouterr().out


def test_time_shares_are_averaged_over_the_lines_that_have_them():
    lines = [
        {"frame": 0, "charts/wall_seconds": 1.0, "time/wait": 0.9},
        {"frame": 100, "charts/wall_seconds": 10.0, "time/wait": 0.2, "time/actor_env": 0.5},
        {"frame": 200, "charts/wall_seconds": 11.0, "time/wait": 0.4},
        {"frame": 500, "charts/wall_seconds": 12.0, "time/wait": 0.6, "time/actor_env": 0.7, "losses/total": 1.0},
    ]
    expected = {"frames_per_second": 200.0, "wait": 0.4, "actor_env": 0.6}
    for some in (lines, [*lines[:2], lines[3], lines[2] | {"frame": 500, "charts/wall_seconds": 12.0}]):
        assert benchmark.summarise(some) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("alone", signal.SIGINT),
        pytest.param("alone", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("training", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_benchmark_exits_promptly_without_traceback(moment, number):
    """Whether it measures a part alone, in processes that a terminal's Ctrl-C reaches as well, or trains."""
    seconds = 3600 if moment == "alone" else 1
    process = start_command("benchmark", "--game", "catch", "--torso", "shallow", "--batch-size", 4, "--seconds", seconds)
    try:
        main = psutil.Process(process.pid)
        wait_until(lambda: rollout_actors(main.pid) if moment == "training" else main.children(), process=process)
        family = main.children(recursive=True)
        asked = time.monotonic()
        send(main, number)
        output, errors = process.communicate(timeout=20)
        print(f"{moment}, {number.name}: left after {time.monotonic() - asked:.1f} s")
        wait_until(lambda: all(map(is_gone, family)), seconds=10)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert "stopped; there is no result" in output
    assert "Traceback" not in errors
    assert "KeyboardInterrupt" not in errors
