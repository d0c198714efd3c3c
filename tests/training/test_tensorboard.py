import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.hparams import metadata

from agents.tasks import TASKS
from envs.stream import EnvSpec
from training.metrics import MetricsWriter
from training.tensorboard import FINAL, OVERVIEW, custom_charts, write_hparams

SPEC = EnvSpec(num_actions=3, frame_shape=(1, 40, 40), stack=1, frames_per_step=1)


def events(run_dir):
    accumulator = EventAccumulator(str(run_dir))
    accumulator.Reload()
    return accumulator


def row(run_dir):
    """What TensorBoard's HPARAMS has of a run: its settings, and its final numbers."""
    board = events(run_dir)
    content = board.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    settings = metadata.parse_session_start_info_plugin_data(content).hparams
    numbers = {tag: [event.value for event in board.Scalars(tag)] for tag in board.Tags()["scalars"] if tag in FINAL}
    return {name: value.string_value or value.number_value for name, value in settings.items()}, numbers


def test_return_length_and_speed_are_the_first_tags(tmp_path):
    scalars = dict.fromkeys(("actors/alive", "auxiliary/q", *OVERVIEW, "charts/games"), 1.0) | {"charts/episode_return": 7.5}
    writer = MetricsWriter(tmp_path)
    writer.write(10, scalars)
    writer.write(20, {"actors/alive": 1.0})
    writer.close()
    board = events(tmp_path)
    tags = sorted(board.Tags()["scalars"])
    assert tags[:3] == ["Overview/1_return", "Overview/2_length", "Overview/3_frames_per_second"]
    assert set(tags[3:]) == set(scalars)
    assert [(event.step, event.value) for event in board.Scalars("Overview/1_return")] == [(10, 7.5)]
    assert "Overview" not in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.parametrize("task", TASKS)
def test_custom_charts_are_about_what_the_task_has(tmp_path, task):
    built = TASKS[task].build(TASKS[task].Config(), SPEC, 8)
    writer = MetricsWriter(tmp_path)
    writer.charts(custom_charts(built))
    writer.close()
    layout = Layout.FromString(events(tmp_path).Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0])
    expected = ["learning", "lag and speed"]
    expected += ["questions"] if "gvf" in task else []
    expected += ["meta-gradient"] if task in ("gvf", "reverse_gvf") else []
    assert [category.title for category in layout.category] == expected
    assert layout.category[0].chart[0].multiline.tag == ["^charts/episode_return$"]


def test_a_run_has_one_row_of_settings_and_final_numbers(make_config, tmp_path):
    config = make_config(game="pong", protocol="machado", learning_rate=1e-3, seed=3)
    result = {"evaluation": {"mean": 2.0}, "training_return": 1.0, "human_normalised": None, "frames_per_second": 50.0}
    write_hparams(tmp_path, config, result | {"evaluation": None})
    assert row(tmp_path)[1]["final/score"] == [1.0]
    write_hparams(tmp_path, config, result)
    settings, numbers = row(tmp_path)
    assert numbers == {"final/score": [2.0], "final/training_return": [1.0], "final/frames_per_second": [50.0]}
    assert (settings["game"], settings["task"], settings["seed"]) == ("pong", "none", "3")
    assert settings["update/learning_rate"] == 1e-3
    assert sorted(settings)[:5] == ["changed", "game", "seed", "task", "torso"]
    assert settings["changed"] == "unroll=5, batch_size=4, learning_rate=0.001, learners=1, protocol=machado"


def test_a_row_that_cannot_be_written_stops_nothing(make_config, tmp_path, caplog):
    (tmp_path / "file").touch()
    write_hparams(tmp_path / "file", make_config(), {})
    assert "HPARAMS of" in caplog.text
