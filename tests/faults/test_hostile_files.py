"""Run directories from strangers: nothing in them is executed, followed or believed without measure."""

import json
import os
import random
import shutil
import sys
from contextlib import suppress

import pytest
import ray
import torch
from safetensors.torch import save

import launch
from actors.ray_pool import RayPool
from actors.resources import Resources
from configs.errors import CheckpointError, ConfigError, RunError
from configs.train import TrainConfig
from training.loop import train
from training.metrics import MetricsWriter, keep_until
from training.storage import checkpoint as module
from training.storage.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from training.storage.files import UnsafeFileError, read_bounded, write_atomically
from training.storage.run_directory import RunDirectory

COUNTER = "gym:tests.helpers.counter:Counter-v0"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A small finished run."""
    path = tmp_path_factory.mktemp("runs") / "run"
    flags = "--game catch --torso shallow --pool serial --frames 80 --batch-size 4 --unroll 5 --eval-episodes 0 --log-frames 20"
    assert launch.main(["train", "--run-dir", str(path), *flags.split()]) == 0
    return path


@pytest.fixture
def run(template, tmp_path):
    return shutil.copytree(template, tmp_path / "run")


def refused(capsys, *arguments):
    capsys.readouterr()
    assert launch.main(list(map(str, arguments))) == 2
    complaint = capsys.readouterr().err
    assert complaint.splitlines()[-1].startswith("launch.py: ")
    assert "Traceback" not in complaint
    assert complaint.isascii() or complaint.replace("\n", "").isprintable()
    return complaint


def edit_config(directory, **changes):
    path = directory / "config.json"
    record = json.loads(path.read_text())
    for group, values in changes.items():
        record["config"][group] |= values
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "checkpoints", "result.json", ".lock", "videos"])
def test_links_out_of_the_directory_are_not_followed(run, tmp_path, capsys, name):
    outside = tmp_path / "outside"
    if (run / name).is_dir():
        shutil.copytree(run / name, outside)
    elif (run / name).exists():
        shutil.copy(run / name, outside)
    else:
        outside.mkdir()
    before = {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()}
    shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    for command in (["evaluate", "--episodes", "1", "--video"], ["train", "--resume", "--frames", "160"]):
        assert "is a link" in refused(capsys, command[0], "--run-dir", run, *command[1:])
    assert {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()} == before


def test_a_video_is_not_written_through_a_planted_link(run, tmp_path, capsys):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run / "videos").mkdir()
    film = run / "videos" / "newest_000000000080.mp4"
    film.symlink_to(victim)
    assert launch.main(["evaluate", "--run-dir", str(run), "--episodes", "1", "--video", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["video"] == str(film)
    assert victim.read_text() == "precious"
    assert not film.is_symlink()
    assert [path.name for path in film.parent.iterdir()] == [film.name]


def test_checkpoints_that_are_links_pipes_or_devices_are_not_read(run, capsys):
    newest = max((run / "checkpoints").glob("frame_*"))
    (run / "checkpoints" / "frame_000000009999.safetensors").symlink_to("/dev/zero")
    os.mkfifo(run / "checkpoints" / "frame_000000009998.safetensors")
    (run / "checkpoints" / "frame_zzz\x1b[2J.safetensors").write_bytes(b"")
    assert launch.main(["evaluate", "--run-dir", str(run), "--episodes", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frame"] == int(newest.stem.removeprefix("frame_"))


def test_temporary_files_are_not_written_through_a_planted_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".file.{os.getpid()}.tmp").symlink_to(victim)
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert victim.read_text() == "precious"


def test_a_config_file_cannot_choose_code_to_import(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "payload.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    edit_config(run, env={"game": "gym:payload:Game-v0"})
    assert "would run the code of 'payload'" in refused(capsys, "evaluate", "--run-dir", run)
    assert "would run the code of 'payload'" in refused(capsys, "train", "--run-dir", run, "--resume")
    assert not (tmp_path / "executed").exists()
    assert "payload" not in sys.modules


def test_a_third_party_game_must_be_named_again(make_config, capsys, never):
    config = make_config(game=COUNTER, frames=40)
    train(config, never)
    run = ["--run-dir", str(config.run_path)]
    assert launch.main(["evaluate", *run, "--game", COUNTER, "--episodes", "2"]) == 0
    assert launch.main(["train", *run, "--resume", "--game", COUNTER, "--frames", "200"]) == 0


def test_a_config_file_cannot_choose_the_cluster(run):
    edit_config(run, actors={"pool": "ray", "ray_address": "203.0.113.1:6379"})
    assert launch.parse_train(["--run-dir", str(run), "--resume"]).actors.ray_address == ""
    given = launch.parse_train(["--run-dir", str(run), "--resume", "--ray-address", "10.0.0.1:6379"])
    assert given.actors.ray_address == "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("group", "setting", "value"),
    [
        ("agent", "lstm_size", 10**9), ("learner", "batch_size", 10**12), ("learner", "unroll", 2**70), ("run", "seed", 2**64),
        ("actors", "num_actors", 10**7), ("auxiliary", "num_questions", 10), ("learner", "learning_rate", float("nan")),
        ("agent", "torso", ["deep"]), ("agent", "torso", {}), ("env", "protocol", "__import__('os')"),
        ("env", "game", "../../../etc/passwd"), ("env", "game", "\x1b[2Jpong"), ("env", "hook\n\x1b", 1),
        ("run", "frames", "1"), ("run", "run_dir", 7),
    ],
)  # fmt: skip
def test_unreasonable_settings_are_refused(run, capsys, group, setting, value):
    edit_config(run, **{group: {setting: value}})
    refused(capsys, "evaluate", "--run-dir", run, "--episodes", "1")


def test_a_run_writes_to_its_own_directory_whatever_its_config_says(run, tmp_path):
    edit_config(run, run={"run_dir": str(tmp_path / "elsewhere")})
    assert launch.parse_train(["--run-dir", str(run), "--resume"]).run_path == run


def test_huge_and_deeply_nested_files_are_refused_quickly(run, capsys):
    deep = "[" * 500_000
    for text in (
        deep,
        '{"config": ' + deep,
        '{"config": {"run": {"frames": ' + "9" * 900_000,
        "\x00",
        "null",
        "[]",
        '"config"',
    ):
        (run / "config.json").write_text(text)
        assert "config.json is damaged" in refused(capsys, "evaluate", "--run-dir", run)
    os.truncate(run / "config.json", 10**12)
    assert "more than" in refused(capsys, "evaluate", "--run-dir", run)
    newest = max((run / "checkpoints").glob("frame_*"))
    os.truncate(newest, 10**13)
    with pytest.raises(CheckpointError, match="more than"):
        read_checkpoint(newest)
    newest.write_bytes((2**40).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="promises a header"):
        read_checkpoint(newest)
    os.truncate(run / "metrics.jsonl", 10**12)
    with pytest.raises(UnsafeFileError, match="more than"):
        MetricsWriter(run, from_frame=20)
    with pytest.raises(UnsafeFileError, match="not a plain file"):
        read_bounded(run, 10)


def honest(tensors, values):
    """A checkpoint with the right checksum and whatever content."""
    return save(tensors, {"format": module.FORMAT, "sha256": module._digest(tensors, values), "values": values})


def test_a_checkpoint_with_a_valid_checksum_is_still_checked(run, capsys):
    """The checksum is against accidents; a stranger can compute it."""
    newest = max((run / "checkpoints").glob("frame_*"))
    good = read_checkpoint(newest)

    def replaced(tensors=None, **values):
        write_checkpoint(newest, Checkpoint(good.tensors | (tensors or {}), good.values | values))
        return refused(capsys, "train", "--run-dir", run, "--resume", "--frames", "160")

    stream = good.values["pool"]["stream"]
    bad_streams = [
        stream | {"history": ["ff"] * 4}, stream | {"history": ["00"]}, stream | {"history": "zz"}, stream | {"game": [1]},
        stream | {"game": [-5] * 4}, stream | {"score": [[]]}, stream | {"running": {}}, [], 7, "x",
    ]  # fmt: skip
    for bad in bad_streams:
        assert "does not fit" in replaced(pool=good.values["pool"] | {"stream": bad})
    for bad in ({"rng": {}}, {"rng": {"bit_generator": "os.system"}}, {"rng": None}):
        assert "does not fit" in replaced(pool=good.values["pool"] | bad)
    episodes, nan = good.values["episodes"], float("nan")
    bad_values = [
        {"pool": None}, {"episodes": []}, {"episodes": {"games": "many"}}, {"episodes": episodes | {"steps": []}},
        {"episodes": episodes | {"scores": [nan] * len(episodes["scores"])}}, {"episodes": episodes | {"best": nan}},
        {"episodes": episodes | {"games": -1}}, {"means": {"x": 1}}, {"means": {"x": [1.0, 0]}}, {"means": {"x": [nan, 1]}},
        {"means": {"x": [1.0, 1e400]}}, {"elapsed": "now"}, {"elapsed": 0.0}, {"elapsed": -1.0}, {"elapsed": nan},
        {"elapsed": float("inf")},
    ]  # fmt: skip
    for bad in bad_values:
        assert "does not fit" in replaced(**bad), bad
    weight, moment = (f"learner.{kind}.agent.policy.weight" for kind in ("parameter", "moment"))
    bad_tensors = {
        "torch_rng": [torch.zeros(3)],
        "learner.counters": [torch.zeros(5), *map(torch.tensor, BAD_COUNTERS)],
        "pool.stack": [torch.zeros(2), torch.zeros_like(good.tensors["pool.stack"][:1])],
        "pool.first": [torch.ones(4), torch.ones(2, dtype=torch.bool)],
        "pool.core_state": [torch.zeros(3, 3)],
        weight: [good.tensors[weight] * nan, good.tensors[weight][:1]],
        moment: [-good.tensors[moment], good.tensors[moment] / 0.0],
    }
    for name, values in bad_tensors.items():
        for value in values:
            assert "does not fit" in replaced({name: value}), (name, value)
    for values in ("[]", "7", "null", "NaN"):
        newest.write_bytes(honest(good.tensors, values))
        assert "launch.py" in refused(capsys, "train", "--run-dir", run, "--resume", "--frames", "160")


def test_the_optimiser_state_of_the_questions_is_checked(make_config, capsys, never):
    config = make_config(task="reverse_gvf", meta_interval=2, frames=100)
    train(config, never)
    newest = max((config.run_path / "checkpoints").glob("frame_*"))
    good = read_checkpoint(newest)
    average, step = (f"learner.meta.optimiser.0.{name}" for name in ("exp_avg_sq", "step"))
    first = next(name for name in good.tensors if name.startswith("learner.meta.window.theta."))
    more = {name: torch.cat([value] * 3) for name, value in good.tensors.items() if is_of_window(name)}
    changes = [
        {average: torch.zeros(3)}, {average: good.tensors[average] - 1.0}, {average: good.tensors[average] * float("nan")},
        {step: torch.tensor(-1.0)}, {"learner.meta.optimiser.99.step": torch.tensor(1.0)},
        {"learner.meta.optimiser.0.surprise": torch.tensor(1.0)}, {"learner.meta.optimiser.x.y.z": torch.tensor(1.0)},
        {first: torch.tensor(0.0)}, more,
    ]  # fmt: skip
    for tensors in [*changes, None]:
        kept = good.tensors | tensors if tensors else {name: value for name, value in good.tensors.items() if name != step}
        write_checkpoint(newest, Checkpoint(kept, good.values))
        assert "does not fit" in refused(capsys, "train", "--run-dir", config.run_path, "--resume", "--frames", 200), tensors


def is_of_window(name):
    return name.startswith(("learner.meta.window.batch.", "learner.meta.window.learning_rates"))


def test_a_ray_pool_refuses_negative_counters(make_config, monkeypatch, never):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    pool = RayPool(make_config(pool="ray"), Resources(1, 4, 1), never)
    with pytest.raises(ValueError, match="-1 actors"):
        pool.load_state_dict({}, {"created": -1})


BAD_COUNTERS = [[-1, 0], [0.5, 1.0], [1], [[1, 2]], [2**62, 1]]


@pytest.mark.parametrize("counters", BAD_COUNTERS[:4])
def test_evaluate_checks_the_counters(run, capsys, counters):
    newest = max((run / "checkpoints").glob("frame_*"))
    good = read_checkpoint(newest)
    write_checkpoint(newest, Checkpoint(good.tensors | {"learner.counters": torch.tensor(counters)}, good.values))
    assert "how many frames" in refused(capsys, "evaluate", "--run-dir", run, "--episodes", "1")


def test_weights_that_are_not_finite_are_refused(run, capsys):
    newest = max((run / "checkpoints").glob("frame_*"))
    good = read_checkpoint(newest)
    name = "learner.parameter.agent.policy.weight"
    write_checkpoint(newest, Checkpoint(good.tensors | {name: good.tensors[name] * float("inf")}, good.values))
    assert "policy.weight is not finite" in refused(capsys, "evaluate", "--run-dir", run, "--episodes", "1")


@pytest.mark.parametrize("count", [1000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_fuzzed_configs_and_metrics_are_refused_or_read(run, count):
    rng, config, metrics = random.Random(count), run / "config.json", run / "metrics.jsonl"
    texts = {path: path.read_bytes() for path in (config, metrics)}
    directory, accepted = RunDirectory.open(run), 0
    for _ in range(count):
        data = bytearray(texts[config])
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(data))
            data[place : place + rng.randrange(3)] = rng.choice(
                [b"", b"9", b"-", b'"', b"null", b"[", b"\xff", rng.randbytes(2)]
            )
        config.write_bytes(data)
        with suppress(RunError):
            accepted += isinstance(directory.read_config(), TrainConfig)
    config.write_bytes(texts[config])
    print(f"{count} corruptions of a config tried, {accepted} left it a valid one")
    for _ in range(count // 20):
        data = bytearray(texts[metrics])
        place = rng.randrange(len(data))
        data[place : place + rng.randrange(20)] = rng.randbytes(rng.randrange(20))
        metrics.write_bytes(data)
        keep_until(metrics, 60)
        frames = [json.loads(line)["frame"] for line in metrics.read_bytes().splitlines()]
        assert frames == sorted(set(frames))
        assert all(frame <= 60 for frame in frames)


def test_a_default_run_directory_is_a_single_path_component():
    for game in ("gym:../../x", "gym:a/../../b:Game-v0", "gym:/etc/x:Game-v0"):
        config = TrainConfig.from_dict({"env": {"game": game}})
        assert len(config.run_path.parts) == 2
        assert config.run_path.parts[1] not in ("..", ".")


def test_unknown_settings_are_quoted_not_printed():
    with pytest.raises(ConfigError, match=r"'\\x1b\[2J'"):
        TrainConfig.from_dict({"\x1b[2J": 1})
