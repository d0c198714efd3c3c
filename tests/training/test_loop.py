"""Whole runs: determinism, interruption, learning, and a short real one through Ray."""

import json
import math
import re
import threading
import time

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from agents.tasks import TASKS
from configs.train import ActorConfig, AgentConfig, LearnerConfig
from envs.stream import EpisodeStream, episode_seed
from learners.learner import Learner, NonFiniteError
from training.evaluation import load_agent
from training.loop import train
from training.storage.checkpoint import read_checkpoint

CATCH = {
    "game": "catch", "torso": "shallow", "unroll": 7, "batch_size": 32, "frames": 150_000, "log_frames": 3000,
    "learning_rate": 3e-3, "entropy_cost": 0.03, "eval_episodes": 200,
}  # fmt: skip
"""Learnt, from a random score of -0.75, in some twenty seconds on one core."""


def stop_after(updates, monkeypatch):
    """A request to stop that comes when the learner has made so many updates."""
    stop = threading.Event()
    step = Learner.step

    def counting(self, batch):
        metrics = step(self, batch)
        if self.version == updates:
            stop.set()
        return metrics

    monkeypatch.setattr(Learner, "step", counting)
    return stop


def newest(config):
    return read_checkpoint(max((config.run_path / "checkpoints").glob("frame_*")))


def comparable(checkpoint):
    """All that a checkpoint holds but the seconds it took."""
    means = {k: v for k, v in checkpoint.values["means"].items() if k != "meta/seconds"}
    return {k: v for k, v in checkpoint.values.items() if k != "elapsed"} | {"means": means}


def metrics_without_times(config):
    lines = [json.loads(line) for line in (config.run_path / "metrics.jsonl").read_text().splitlines()]
    vary = ("time/", "meta/seconds", "memory/", "charts/frames_per_second", "charts/wall_seconds")
    return [{k: v for k, v in line.items() if not k.startswith(vary)} for line in lines]


def assert_same_run(one, other):
    ours, theirs = newest(one), newest(other)
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name in ours.tensors:
        assert torch.equal(ours.tensors[name], theirs.tensors[name]), name
    assert comparable(ours) == comparable(theirs)
    assert metrics_without_times(one) == metrics_without_times(other)


def test_a_serial_run_is_a_function_of_its_seed(make_config, tmp_path, never):
    ours, same = (make_config(run_dir=str(tmp_path / name)) for name in ("one", "two"))
    train(ours, never)
    train(same, never)
    assert_same_run(ours, same)
    other = make_config(run_dir=str(tmp_path / "three"), seed=2)
    train(other, never)
    assert not torch.equal(newest(ours).tensors["learner.parameter.agent.policy.weight"],
                           newest(other).tensors["learner.parameter.agent.policy.weight"])  # fmt: skip


@pytest.mark.parametrize(
    "game",
    [
        {"game": "catch", "lstm_size": 8},
        {"game": "catch", "lstm_size": 8, "task": "reverse_gvf", "meta_interval": 4},
        {"game": "catch", "task": "gvf", "meta_interval": 4, "meta_memory_gb": 0.0, "question_input": "future"},
        {"game": "catch", "lstm_size": 8, "envs_per_actor": 16},
        {"game": "catch", "envs_per_actor": 6},
        {"game": "catch", "task": "reverse_gvf", "meta_interval": 2, "meta_period": 5, "optimiser": "adam"},
        *(
            pytest.param({"game": "catch", "task": task}, marks=pytest.mark.slow)
            for task in ("random_gvf", "random_reverse_gvf", "pixel_control", "reward_prediction")
        ),
        {"game": "gym:tests.helpers.counter:Counter-v0"},
        {"game": "breakout", "protocol": "machado", "frames": 1600, "log_frames": 160},
    ],
)
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(make_config, tmp_path, never, monkeypatch, game):
    whole = make_config(run_dir=str(tmp_path / "whole"), **game)
    train(whole, never)
    broken = make_config(run_dir=str(tmp_path / "broken"), **game)
    for updates in (3, 7):
        with monkeypatch.context() as patch:
            assert train(broken, stop_after(updates, patch)) is None
        broken = broken.with_run(resume=True)
        time.sleep(1.1)  # TensorBoard orders event files by the second in their names.
    assert train(broken, never) is not None
    assert_same_run(whole, broken)
    events = EventAccumulator(str(broken.run_path))
    events.Reload()
    assert [e.step for e in events.Scalars("losses/total")] == [line["frame"] for line in metrics_without_times(broken)]


def test_tensorboard_has_every_curve_of_the_custom_charts_and_one_row_for_the_run(make_config, never):
    config = make_config(task="reverse_gvf", meta_interval=2, frames=100, eval_episodes=1)
    train(config, never)
    result = train(config.with_run(resume=True, frames=200), never)
    board = EventAccumulator(str(config.run_path))
    board.Reload()
    tags = board.Tags()["scalars"]
    layout = Layout.FromString(board.Tensors("custom_scalars__config__")[-1].tensor_proto.string_val[0])
    charts = [chart for category in layout.category for chart in category.chart]
    assert len(charts) == 11
    for chart in charts:
        if chart.HasField("multiline"):
            assert any(re.search(pattern, tag) for pattern in chart.multiline.tag for tag in tags), chart.title
        else:
            assert {chart.margin.series[0].value, chart.margin.series[0].lower, chart.margin.series[0].upper} <= set(tags)
    assert [event.value for event in board.Scalars("final/score")] == [pytest.approx(result["evaluation"]["mean"])]
    assert len(list(config.run_path.glob("*.hparams"))) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("task", TASKS)
def test_batches_of_a_single_step_give_no_warnings_and_no_senseless_numbers(make_config, never, task):
    config = make_config(task=task, batch_size=1, unroll=1, frames=40, log_frames=5, meta_interval=3)
    train(config, never)
    lines = [json.loads(line) for line in (config.run_path / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 8
    assert max(abs(value) for line in lines for name, value in line.items() if name.startswith(("auxiliary/", "value/"))) < 100


def test_pictures_wait_for_the_questions_to_move_and_the_last_for_nothing(make_config, never):
    lengths = {"batch_size": 2, "unroll": 5, "frames": 100, "picture_frames": 20}
    config = make_config(game="catch", task="reverse_gvf", meta_interval=4, **lengths)
    train(config, never)
    events = EventAccumulator(str(config.run_path))
    events.Reload()
    updates = [event.step // 10 for event in events.Images("questions")]
    assert updates == [5, 9, 10]


def test_a_run_stopped_before_its_first_batch_can_be_resumed(make_config, tmp_path, never):
    whole, broken = (make_config(run_dir=str(tmp_path / name)) for name in ("whole", "broken"))
    train(whole, never)
    stop = threading.Event()
    stop.set()
    assert train(broken, stop) is None
    assert newest(broken).tensors["learner.counters"].tolist() == [0, 0]
    assert train(broken.with_run(resume=True), never) is not None
    assert_same_run(whole, broken)


def test_a_resumed_run_remembers_what_began_it(make_config, never, monkeypatch):
    config = make_config(frames=40)
    monkeypatch.setattr("training.storage.run_directory.commit", lambda: "first")
    train(config, never)
    began = json.loads((config.run_path / "config.json").read_text())
    for commit, frames in (("second", 80), ("third", 120)):
        monkeypatch.setattr("training.storage.run_directory.commit", lambda commit=commit: commit)
        train(config.with_run(resume=True, frames=frames), never)
    record = json.loads((config.run_path / "config.json").read_text())
    for name in ("commit", "versions", "machine"):
        assert record[name] == began[name]
    assert [(entry["commit"], entry["frame"]) for entry in record["resumed"]] == [("second", 40), ("third", 80)]
    assert record["resumed"][0].keys() == {"commit", "versions", "machine", "frame"}
    assert record["config"]["run"]["frames"] == 120


def test_the_final_games_are_not_those_of_training(make_config, never, monkeypatch):
    seeds = []

    def noting(games, seed):
        seeds.append(seed)
        return EpisodeStream(games, seed)

    for module in ("actors.rollout", "actors.evaluator"):
        monkeypatch.setattr(f"{module}.EpisodeStream", noting)
    train(make_config(frames=40, eval_episodes=2), never)
    training, final = ({episode_seed(seed, env, number) for env in range(16) for number in range(16)} for seed in seeds)
    assert len(training) == len(final) == 256
    assert not training & final


def test_nan_stops_and_keeps_the_last_good_checkpoint(make_config, never, monkeypatch):
    config = make_config(checkpoint_minutes=1e-9)
    step = Learner.step

    def poisoned(self, batch):
        if self.version == 4:
            batch.reward[0, 0] = math.nan
        return step(self, batch)

    monkeypatch.setattr(Learner, "step", poisoned)
    with pytest.raises(NonFiniteError, match="policy loss is nan at update 5"):
        train(config, never)
    assert newest(config).tensors["learner.counters"].tolist() == [80, 4]


@pytest.mark.parametrize(
    ("pool", "task"),
    [
        pytest.param("ray", "none", marks=pytest.mark.slow),
        *(pytest.param("serial", task, marks=() if task == "none" else pytest.mark.slow) for task in TASKS),
    ],
)
def test_catch_is_learnt_to_near_its_optimum(make_config, never, pool, task):
    result = train(make_config(pool=pool, task=task, **CATCH), never)
    assert result["evaluation"]["mean"] > 0.9
    assert result["training_return"] > 0.8


@pytest.mark.slow
def test_catch_is_learnt_in_bfloat16(make_config, never):
    result = train(make_config(precision="bf16", **CATCH), never)
    assert result["evaluation"]["mean"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("task", ["none", "reverse_gvf"])
def test_catch_is_learnt_with_adam(make_config, never, task):
    assert train(make_config(task=task, optimiser="adam", **CATCH), never)["evaluation"]["mean"] > 0.9


def test_a_short_real_atari_run_through_ray(make_config, never):
    config = make_config(game="pong", torso="nature", pool="ray", frames=4000, batch_size=8, log_frames=800,
                         unroll=10, eval_episodes=1)  # fmt: skip
    result = train(config, never)
    on_disk = json.loads((config.run_path / "result.json").read_text())
    assert on_disk == json.loads(json.dumps(result))
    assert on_disk["frames"] == 4160  # Whole batches: 13 of 320 frames.
    assert on_disk["protocol"] == on_disk["evaluation"]["protocol"] == "impala"
    assert -21 <= on_disk["evaluation"]["scores"][0] <= 21
    assert on_disk["human_normalised"] == pytest.approx((on_disk["evaluation"]["mean"] + 20.7) / 35.3)
    lines = [json.loads(line) for line in (config.run_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["frame"] for line in lines] == [960, 1600, 2560, 3200, 4160]
    for name in ("losses/total", "policy/entropy", "vtrace/rho", "policy/lag", "time/wait", "time/actor_env",
                 "charts/frames_per_second", "actors/alive", "memory/actors_mb"):  # fmt: skip
        assert name in lines[-1], name
    load_agent(config, newest(config))


def test_an_ale_environment_of_gymnasium_claims_no_protocol_and_counts_its_frames(make_config, never, capfd):
    config = make_config(game="gym:ALE/Pong-v5", frames=80, batch_size=2, unroll=5, log_frames=40)
    train(config, never)
    result = json.loads((config.run_path / "result.json").read_text())
    assert (result["protocol"], result["human_normalised"]) == (None, None)
    assert (result["frames"], result["updates"]) == (80, 2)
    told = [line for line in capfd.readouterr().err.splitlines() if "--game pong" in line]
    assert len(told) == 1
    train(make_config(game="catch", run_dir=str(config.run_path / "catch")), never)
    assert "protocol" not in capfd.readouterr().err


def test_presets():
    from configs.train import PRESETS

    assert PRESETS["paper"].agent == AgentConfig(torso="deep", lstm_size=0)
    paper = PRESETS["paper"].learner
    assert (paper.batch_size, paper.unroll, paper.learning_rate, paper.rmsprop_eps, paper.clip_norm) == (
        32,
        20,
        6e-4,
        0.01,
        40,
    )
    assert (paper.discount, paper.value_cost, paper.entropy_cost, paper.rmsprop_decay) == (0.99, 0.5, 0.01, 0.99)
    assert (paper.vtrace_lambda, paper.rmsprop_initial_moment) == (1.0, 1.0)
    assert PRESETS["default"].learner == LearnerConfig()
    assert PRESETS["default"].actors == ActorConfig()
