import json
import math

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from envs.stream import Episode
from training.metrics import WINDOW, EpisodeStatistics, Means, MetricsWriter, keep_until


def test_means_leave_out_nan_and_survive_a_round_trip():
    means = Means()
    means.add({"a": 1.0, "b": math.nan})
    means.add({"a": 2.0, "b": 5.0})
    copy = Means()
    copy.load_state_dict(json.loads(json.dumps(means.state_dict())))
    assert means.take() == copy.take() == {"a": 1.5, "b": 5.0}
    assert means.take() == {}


def test_what_is_called_a_maximum_is_one_also_across_a_resume():
    means = Means()
    for value in (-3.0, -1.0, math.nan):
        means.add({"policy/lag_max": value})
    copy = Means()
    copy.load_state_dict(json.loads(json.dumps(means.state_dict())))
    for each in (means, copy):
        each.add({"policy/lag_max": -2.0})
        assert each.take() == {"policy/lag_max": -1.0}
        each.add({"policy/lag_max": -9.0})
        assert each.take() == {"policy/lag_max": -9.0}


def test_statistics_are_of_the_last_games_and_know_the_best():
    statistics = EpisodeStatistics()
    statistics.add([Episode(100.0, 7)] * 10)
    assert not statistics.improved()  # Too few games to call it the best.
    statistics.add([Episode(float(i % 2), 10) for i in range(WINDOW)])
    metrics = statistics.metrics(frames_per_step=4)
    assert metrics["charts/episode_return"] == 0.5
    assert metrics["charts/episode_length"] == 40.0
    assert metrics["charts/games"] == WINDOW + 10
    copy = EpisodeStatistics()
    copy.load_state_dict(json.loads(json.dumps(statistics.state_dict())))
    assert copy.improved()
    assert not copy.improved()
    assert copy.metrics(4) == metrics


def test_a_resumed_curve_is_one_curve(tmp_path):
    writer = MetricsWriter(tmp_path)
    for frame in (10, 20, 30):
        writer.write(frame, {"charts/x": float(frame), "charts/nan": math.nan})
    writer.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"frame": 40, "char')  # A line that a killed process left behind.
    writer = MetricsWriter(tmp_path, from_frame=20)
    writer.write(30, {"charts/x": -30.0})
    writer.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"frame": 10, "charts/x": 10.0}, {"frame": 20, "charts/x": 20.0}, {"frame": 30, "charts/x": -30.0}]
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("charts/x")] == [(10, 10.0), (20, 20.0), (30, -30.0)]


@pytest.mark.parametrize("content", ["", "nonsense\n", '{"no_frame": 1}\n', "[1]\n"])
def test_nonsense_in_the_metrics_is_cut_away(tmp_path, content):
    (tmp_path / "metrics.jsonl").write_text(content)
    writer = MetricsWriter(tmp_path, from_frame=5)
    writer.write(6, {"x": 1.0})
    writer.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"frame": 6, "x": 1.0}\n'


@pytest.mark.parametrize(
    ("frames", "kept", "damaged"),
    [
        ([10, 20, 30, 40, 50], [10, 20, 30], 0),
        ([10, 9920, 30, 40, 50], [10, 30], 1),
        ([10, 9920, None, 30, 40, None], [10, 30], 2),
        ([10, None, 30, 40], [10, 30], 1),
        ([10, 25, 20, 30, 40], [10, 25, 30], 1),
    ],
)
def test_a_damaged_frame_number_costs_its_own_line_and_is_told(tmp_path, caplog, frames, kept, damaged):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join("nonsense\n" if frame is None else f'{{"frame": {frame}}}\n' for frame in frames))
    keep_until(path, 30)
    assert [json.loads(line)["frame"] for line in path.read_text().splitlines()] == kept
    assert f"{damaged} damaged lines are dropped" in caplog.text if damaged else not caplog.text
