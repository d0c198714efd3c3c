"""What a run tells its user."""

import json

import numpy as np
import pytest
from PIL import Image

from actors.evaluator import EvaluationResult
from training import evaluation
from training.loop import train
from training.outcome import describe_end, describe_run, describe_scores, keep_pictures
from training.progress import sparkline, tell


def test_the_text_of_an_evaluation():
    first = describe_scores(EvaluationResult("pong", "machado", [1.0, 3.0], [5, 5], greedy=True).summary())
    beside = "random play -20.7, human 14.6, human-normalised 0.6"
    assert first.startswith(f"pong (machado protocol, greedy), 2 games: mean 2.00 +- 1.00, median 2.00; {beside}")
    second = EvaluationResult("catch", "impala", [1.0], [5]).summary()
    assert describe_scores(second) == "catch, 1 game: mean 1.00, median 1.00, best possible 1.000"


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 4, ""),
        ([3.0], 4, ""),
        ([2.0, 2.0], 4, "▁▁"),
        ([0.0, 7.0, 3.0], 4, "▁█▄"),
        ([0.0, 2.0, 6.0, 8.0], 2, "▁█"),  # Means 1 and 7.
    ],
)
def test_a_curve_as_text(values, width, expected):
    assert sparkline(values, width) == expected


def test_a_long_curve_has_the_width_asked_for():
    line = sparkline([float(i) for i in range(997)], 20)
    assert len(line) == 20
    assert list(line) == sorted(line)


def test_a_terminal_without_such_characters_gets_others(monkeypatch, tmp_path):
    with open(tmp_path / "log", "w", encoding="ascii") as file:
        monkeypatch.setattr("sys.stderr", file)
        tell("return 3 ▁█")
    assert (tmp_path / "log").read_text() == "return 3 ??\n"


def test_a_finished_run_has_pictures_and_a_film_and_says_where(make_config, never):
    config = make_config(task="reverse_gvf", num_questions=4, meta_interval=2, film=True, eval_episodes=2)
    lines = describe_end(config, train(config, never))
    assert lines[0].startswith("200 frames in ")
    assert lines[1].startswith("catch, 2 games: mean ")
    film, picture = config.run_path / "videos" / "latest_000000000200.mp4", config.run_path / "pictures" / "questions.png"
    assert f"film of a game:    {film}" in lines
    assert f"picture:           {picture}" in lines
    assert film.stat().st_size > 1000
    assert Image.open(picture).size[0] > 500
    assert lines[-1].endswith("--resume --frames 400")
    assert json.loads((config.run_path / "result.json").read_text())["video"] == str(film)


def test_a_run_without_film_says_how_to_make_one(make_config, never):
    config = make_config(frames=40)
    (line,) = [line for line in describe_end(config, train(config, never)) if line.startswith("film a game:")]
    assert line.endswith(f"evaluate --run-dir {config.run_path} --video")
    assert not (config.run_path / "pictures").exists()


def test_a_disk_that_refuses_a_film_or_a_picture_does_not_spoil_the_run(make_config, never, monkeypatch, capsys, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(evaluation, "record_video", full)
    monkeypatch.setattr("training.outcome.write_atomically", full)
    config = make_config(task="random_gvf", num_questions=4, film=True)
    assert train(config, never)["video"] is None
    assert "no film in " in capsys.readouterr().err
    assert "questions.png cannot be written: No space left on device" in caplog.text


def test_pictures_replace_earlier_ones(tmp_path):
    for shade in (10, 200):
        image = np.full((4, 6, 3), shade, np.uint8)
        keep_pictures(tmp_path, {"questions": image, "questions/1": image[:1]})
    assert np.asarray(Image.open(tmp_path / "pictures" / "questions.png")).tolist() == [[[200] * 3] * 6] * 4
    assert np.asarray(Image.open(tmp_path / "pictures" / "questions" / "1.png")).tolist() == [[[200] * 3] * 6]


def test_the_text_tab_has_the_commands(make_config, monkeypatch):
    config = make_config()
    monkeypatch.setattr("sys.argv", ["launch.py", "train", "--game", "catch", "--run-dir", "a b"])
    text = describe_run(config)
    assert "| begun with | `launch.py train --game catch --run-dir 'a b'` |" in text
    assert f"train --run-dir {config.run_path} --resume` |" in text
    monkeypatch.setattr("sys.argv", ["worker.py"])  # A trial of a sweep.
    assert "begun with" not in describe_run(config)
