"""The data plane, in a very short form."""

import json

import numpy as np
import pytest

import launch
from actors.ray_pool import RolloutActor
from envs.fields import FIELDS
from envs.registry import game_spec
from studies.benchmark import data_plane
from studies.benchmark.data_plane import ReadyMadeActor, print_data_plane


def test_the_data_plane_is_measured(monkeypatch, capsys, signals):
    monkeypatch.setattr(data_plane, "BROADCASTS", (2, 5))
    flags = ["--game", "catch", "--torso", "shallow", "--unroll", "5", "--batch-size", "4", "--seconds", "0.3"]
    assert launch.main(["benchmark", "--data-plane", "--json", *flags]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["frames_per_second"] >= result["slowest_frames_per_second"] > 0
    spec = game_spec("catch", "impala")
    steps = sum(f.allocate(spec, 5, 1).nbytes for f in FIELDS.values() if f.time != "start")
    size = np.prod(spec.observation_shape) + steps + np.int64().nbytes  # The version.
    assert result["bytes_per_frame"] == size / (5 * spec.frames_per_step)
    assert 0 < result["driver_share"] <= 1
    assert result["driver_seconds_per_rollout"] > 0
    for times in result["broadcast"].values():
        assert times["seconds"] >= times["driver_seconds"] > 0
    assert list(result["broadcast"]) == ["2", "5"]
    print_data_plane(result)
    assert "weights to 5 actors" in capsys.readouterr().out


def test_a_ready_made_rollout_is_played_once_and_loads_every_version(make_config, monkeypatch):
    actor = ReadyMadeActor(make_config(), 4, seed=0, core=None)
    played, loaded = [], []
    rollout, set_weights = RolloutActor.rollout, actor._worker.set_weights
    monkeypatch.setattr(RolloutActor, "rollout", lambda *given: played.append(given) or rollout(*given))
    monkeypatch.setattr(actor._worker, "set_weights", lambda *given: loaded.append(given[1]) or set_weights(*given))
    weights = data_plane.flat_weights(actor._worker._agent).numpy()
    first, *others = [actor.rollout(weights, version) for version in (0, 0, 1, 2)]
    assert len(played) == 1
    assert loaded == [0, 1, 2]
    assert [trajectory.version for trajectory in others] == [0, 1, 2]
    assert all(trajectory.frames is first.frames for trajectory in others)


@pytest.mark.slow
def test_the_data_plane_carries_the_frames_of_a_gpu_learner(capsys, signals):
    """IMPALA's headline is 250,000 frames/s; this bound leaves room for other load on the machine."""
    assert launch.main(["benchmark", "--data-plane", "--json", "--seconds", "10"]) == 0
    assert json.loads(capsys.readouterr().out)["frames_per_second"] > 60_000
