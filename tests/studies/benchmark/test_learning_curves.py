"""Learning curves of run directories."""

import csv
import json
import sys

from PIL import Image

from studies.benchmark import learning_curves


def write_run(directory, seed, scores):
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"config": {"env": {"game": "catch"}, "run": {"seed": seed}}}))
    lines = [{"frame": 100 * (i + 1), "charts/frames_per_second": 10.4} | score for i, score in enumerate(scores)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_curves_of_several_seeds_become_a_table_and_a_figure(tmp_path, monkeypatch):
    write_run(tmp_path / "a", 1, [{}, {"charts/episode_return": 0.12345}, {"charts/episode_return": 0.5}])
    write_run(tmp_path / "b", 2, [{"charts/episode_return": -1.0}])
    out = tmp_path / "results" / "catch"
    monkeypatch.setattr(sys, "argv", ["learning_curves", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out)])
    learning_curves.main()
    with out.with_suffix(".csv").open() as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert rows == [
        ("catch", "1", "200", "0.123", "10"),
        ("catch", "1", "300", "0.5", "10"),
        ("catch", "2", "100", "-1.0", "10"),
    ]
    assert Image.open(out.with_suffix(".png")).size == (840, 480)
