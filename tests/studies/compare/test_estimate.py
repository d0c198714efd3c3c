"""The estimated cost of a sweep."""

import pytest

from actors.layout import SERIAL_OVERHEAD, Costs
from configs.errors import ConfigError
from studies.compare import estimate as sweep_estimate
from studies.compare.estimate import Measured, estimate_sweep, finishing_time
from tests.helpers.trial_files import FRAMES, make_sweep, write_trial


def test_finishing_time_by_hand():
    """Places free at 0, 0; then 5, 0; 5, 3; 5, 7; 6, 7."""
    assert finishing_time([5, 3, 4, 1], 2) == 7
    assert finishing_time([5, 3, 4, 1], 9) == 5
    assert finishing_time([], 2) == 0


def test_an_estimate_counts_unfinished_trials_only(tmp_path, monkeypatch):
    measured = {"none": Measured(100.0, 2**20), "reverse_gvf": Measured(50.0, 2 * 2**20)}
    asked = []

    def measure(config, cores, gpu):
        asked.append((config.env.game, config.task))
        return measured[config.task]

    monkeypatch.setattr(sweep_estimate, "measure", measure)
    sweep = make_sweep(tmp_path / "g", games=("pong", "catch", "qbert"), seeds=1)
    write_trial(sweep.trials[0], score=1.0)
    left = estimate_sweep(sweep, sweep.statuses(), cores=2)
    assert sorted(asked) == [("catch", "none"), ("catch", "reverse_gvf"), ("pong", "none"), ("pong", "reverse_gvf")]
    assert left.frames == 5 * FRAMES
    # 0 and 20 s for pong, then 10 and 20 for catch, then 10 and 20 for qbert: places free at 0, 20; 10; 30; 30; 50.
    assert left.hours == pytest.approx(50 / 3600)
    assert left.disk_bytes == 3 * (2 * 1 + 3 * 2) * 2**20 + 5 * 100 * sweep_estimate.LOG_LINE_BYTES


def test_an_estimate_measures_settings_that_affect_speed(tmp_path, monkeypatch):
    """Torsos do, learning rates do not; a trial of twice the frames takes twice as long."""
    asked = []

    def measure(config, cores, gpu):
        asked.append((config.env.game, config.agent.torso))
        return Measured(100.0 if config.agent.torso == "shallow" else 50.0, 2**20)

    monkeypatch.setattr(sweep_estimate, "measure", measure)
    vary = ("torso=shallow,deep", "learning_rate=3e-4,6e-4", "frames=1000,2000")
    sweep = make_sweep(tmp_path / "g", tasks=("none",), seeds=1, vary=vary)
    estimate = estimate_sweep(sweep, sweep.statuses(), cores=1)
    assert sorted(asked) == [("catch", "deep"), ("catch", "shallow")]
    assert sorted(agent for _, agent in estimate.speeds) == ["none-torso=deep", "none-torso=shallow"]
    assert estimate.frames == 2 * 2 * (1000 + 2000)
    assert estimate.hours == pytest.approx((2 * 3000 / 100 + 2 * 3000 / 50) / 3600)


def test_an_estimate_for_a_cluster_uses_the_model_of_a_layout(tmp_path, monkeypatch):
    """A serial trial plays and learns on its core; on four cores with a GPU three actors play, and updates cost a thirtieth."""
    costs = Costs(rollout=1e-3, update=3e-3)
    monkeypatch.setattr(sweep_estimate, "measure_costs", lambda config: costs)
    serial = make_sweep(tmp_path / "serial", tasks=("none",), seeds=8)
    estimate = estimate_sweep(serial, serial.statuses(), cores=4)
    assert estimate.trials_at_once == 4
    step = SERIAL_OVERHEAD * 1e-3 + 3e-3
    assert [found.frames_per_second for found in estimate.speeds.values()] == pytest.approx([1 / step])
    assert estimate.hours == pytest.approx(2 * FRAMES * step / 3600)
    on_gpus = make_sweep(tmp_path / "gpus", tasks=("none",), seeds=8, cores_per_trial=4, gpus_per_trial=0.5)
    estimate = estimate_sweep(on_gpus, on_gpus.statuses(), cores=64, gpus=2)
    assert estimate.trials_at_once == 4
    played = 1e-3 / 3
    assert [found.frames_per_second for found in estimate.speeds.values()] == pytest.approx([1 / played])
    with pytest.raises(ConfigError, match=r"a trial takes 4 cores and 0\.5 GPUs; there are 64 cores"):
        estimate_sweep(on_gpus, on_gpus.statuses(), cores=64)


def test_measuring_gives_speed_and_checkpoint_size(make_config):
    plain = sweep_estimate.measure(make_config())
    asking = sweep_estimate.measure(make_config(task="reverse_gvf"))
    assert plain.frames_per_second > 0
    assert asking.frames_per_second > 0
    assert asking.checkpoint_bytes > plain.checkpoint_bytes > 2**19
