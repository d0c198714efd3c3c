import json
import os
import pickle

import pytest
import torch

from configs.errors import CheckpointError
from training.storage import checkpoint as module
from training.storage.checkpoint import Checkpoint, CheckpointDirectory, read_checkpoint
from training.storage.files import write_atomically


def make(value):
    return Checkpoint({"a.x": torch.full((3,), float(value)), "b": torch.tensor(7)}, {"text": "é", "list": [1, 2.5]})


def test_everything_comes_back(tmp_path):
    directory = CheckpointDirectory(tmp_path, keep=2)
    path = directory.save(make(1), frame=10, is_best=False)
    loaded = read_checkpoint(path)
    assert loaded.values == make(1).values
    assert loaded.group("a")["x"].tolist() == [1.0, 1.0, 1.0]
    assert loaded.tensors["b"].item() == 7


def test_the_newest_and_the_best_are_kept(tmp_path):
    directory = CheckpointDirectory(tmp_path, keep=2)
    for frame in (5, 10, 200, 1000):
        directory.save(make(frame), frame, is_best=frame == 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best.safetensors", "frame_000000000200.safetensors", "frame_000000001000.safetensors",
    ]  # fmt: skip
    assert directory.newest().group("a")["x"][0] == 1000
    assert directory.best().group("a")["x"][0] == 10


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_damaged_newest_gives_way_to_the_one_before(tmp_path, size, caplog):
    directory = CheckpointDirectory(tmp_path, keep=2)
    directory.save(make(1), 1, is_best=False)
    path = directory.save(make(2), 2, is_best=False)
    os.truncate(path, size % path.stat().st_size)
    assert directory.newest().group("a")["x"][0] == 1
    assert "damaged" in caplog.text


def test_the_best_steps_in_when_all_others_are_damaged(tmp_path, caplog):
    directory = CheckpointDirectory(tmp_path, keep=3)
    for frame in (1, 2, 3):
        directory.save(make(frame), frame, is_best=frame == 1)
    for path in directory.list()[:2]:
        os.truncate(path, 20)
    assert directory.newest().group("a")["x"][0] == 1
    assert "using best" not in caplog.text
    os.truncate(directory.list()[2], 20)
    assert directory.newest().group("a")["x"][0] == 1
    assert caplog.text.count("using best.safetensors instead") == 3
    os.truncate(tmp_path / "best.safetensors", 20)
    with pytest.raises(CheckpointError, match=r"frame_000000000003.* is damaged"):
        directory.newest()


@pytest.mark.parametrize(
    ("frames", "damaged", "keep", "saved", "left"),
    [
        ((100, 200, 300), (300,), 1, 210, [210]),
        ((100, 200, 300, 400), (200, 300, 400), 3, 150, [100, 150]),
        ((100, 200, 300), (300,), 2, 300, [200, 300]),
    ],
)
def test_a_save_outlives_damaged_ones_of_later_frames(tmp_path, frames, damaged, keep, saved, left):
    for frame in frames:
        path = CheckpointDirectory(tmp_path, keep=9).save(make(frame), frame, is_best=False)
        if frame in damaged:
            os.truncate(path, 20)
    directory = CheckpointDirectory(tmp_path, keep)
    path = directory.save(make(saved), saved, is_best=False)
    assert sorted(int(path.stem.removeprefix("frame_")) for path in tmp_path.iterdir()) == left
    assert directory.list()[0] == path
    assert directory.newest().group("a")["x"][0] == saved


def test_what_cannot_be_removed_does_not_fail_a_save_or_displace_it(tmp_path):
    (tmp_path / "frame_000000000999.safetensors").mkdir()
    directory = CheckpointDirectory(tmp_path, keep=1)
    directory.save(make(1), 1, is_best=False)
    path = directory.save(make(2), 2, is_best=False)
    assert directory.list()[1:] == [path]
    assert directory.newest().group("a")["x"][0] == 2


def test_nothing_usable_is_an_error_that_says_so(tmp_path):
    directory = CheckpointDirectory(tmp_path, keep=2)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        directory.newest()
    path = directory.save(make(1), 1, is_best=False)
    os.truncate(path, 20)
    with pytest.raises(CheckpointError, match="damaged"):
        directory.newest()


def test_other_kinds_of_files_are_refused_and_not_executed(tmp_path):
    from safetensors.torch import save_file

    foreign = tmp_path / "foreign.safetensors"
    save_file({"x": torch.ones(1)}, foreign)
    with pytest.raises(CheckpointError, match="not a Hindcast checkpoint"):
        read_checkpoint(foreign)
    save_file({"x": torch.ones(1)}, foreign, {"format": module.FORMAT, "values": "{}"})
    with pytest.raises(CheckpointError, match="which carries a checksum"):
        read_checkpoint(foreign)
    for values in ("{not json", "[" * 200_000):
        digest = module._digest({"x": torch.ones(1)}, values)
        save_file({"x": torch.ones(1)}, foreign, {"format": module.FORMAT, "sha256": digest, "values": values})
        with pytest.raises(CheckpointError, match="damaged"):
            read_checkpoint(foreign)

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    hostile = tmp_path / "hostile.safetensors"
    hostile.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(hostile)
    torch.save({"x": Bomb()}, hostile)
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(hostile)
    assert not (tmp_path / "executed").exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_values_are_plain_json(tmp_path):
    with pytest.raises(TypeError):
        CheckpointDirectory(tmp_path, keep=1).save(Checkpoint({}, {"x": object()}), 1, is_best=False)
    assert json.dumps(make(1).values)


def test_the_newest_is_looked_for_again_when_a_run_replaces_it_meanwhile(tmp_path, monkeypatch, caplog):
    directory = CheckpointDirectory(tmp_path, keep=1)
    directory.save(make(1), 1, is_best=True)
    read = module.read_checkpoint

    def replacing(path):
        if directory.list()[0].name == "frame_000000000001.safetensors":
            directory.save(make(2), 2, is_best=False)
        return read(path)

    monkeypatch.setattr(module, "read_checkpoint", replacing)
    assert directory.newest().group("a")["x"][0] == 2
    assert caplog.text == ""


def test_a_checkpoint_by_its_frame(tmp_path):
    directory = CheckpointDirectory(tmp_path, keep=2)
    with pytest.raises(CheckpointError, match="no checkpoint of frame 5; there are none"):
        directory.of_frame(5)
    for frame in (5, 10, 200):
        directory.save(make(frame), frame, is_best=False)
    assert directory.of_frame(10).group("a")["x"][0] == 10
    with pytest.raises(CheckpointError, match="no checkpoint of frame 5; there are those of 200, 10"):
        directory.of_frame(5)
