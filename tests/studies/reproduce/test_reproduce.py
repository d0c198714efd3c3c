"""The paper's figures, in miniature."""

import errno
import json
import os
import threading

import numpy as np
import pytest

import launch
from configs.commands import ReproduceConfig
from configs.errors import RunError, StopRequested
from studies.reproduce import lambda_sweep as reproduce_lambda
from studies.reproduce import microdrone as reproduce_microdrone
from studies.reproduce import off_policy as reproduce_off_policy
from studies.reproduce import reacher as reproduce_reacher
from studies.reproduce.reproduce import STUDIES
from studies.reproduce.run_store import RunStore

SHORT = {
    "lambda": (reproduce_lambda, {"steps": 3000}),
    "microdrone": (reproduce_microdrone, {"learning_steps": 6000, "watching_steps": 2000}),
    "reacher": (reproduce_reacher, {"td3_steps": 150, "learning_steps": 300, "watching_steps": 400}),
    "off_policy": (
        reproduce_off_policy,
        {"td3_steps": 150, "learning_steps": 300, "log_steps": 100, "behaviour_stds": [0.1, 0.5]},
    ),
}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) for name in SHORT])
def study(request, monkeypatch):
    module, changes = SHORT[request.param]
    for name, value in changes.items():
        monkeypatch.setitem(module.SETTINGS, name, value)
    return request.param


def test_a_study_writes_its_results_and_a_rerun_continues(study, tmp_path, never):
    config = ReproduceConfig(out=str(tmp_path / "out"), runs=2)
    summary = STUDIES[study](config, never)
    out = tmp_path / "out"
    assert (out / "summary.md").read_text() == summary
    assert "hold" in summary or "no run diverges" in summary
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    settings = json.loads((out / "settings.json").read_text())
    assert settings["settings"]["study"] == study
    data = json.loads((out / "data.json").read_text())
    store = RunStore(out)
    kept = store.read()
    (out / "runs.jsonl.gz").unlink()
    store.write(0, kept[0])
    (out / "runs" / "001.json").write_text("{")
    assert STUDIES[study](config, never) == summary
    again = json.loads((out / "data.json").read_text())
    # A run depends on its number alone; the chunk that it is made in changes no more than the rounding.
    assert_nearly_equal(again, data)
    assert store.read()[0] == kept[0]


def test_the_help_names_every_study():
    assert all(name in ReproduceConfig.__doc__ for name in STUDIES)


def test_a_write_error_is_reported_in_one_line(tmp_path, monkeypatch, capsys):
    """Also of a figure, which matplotlib writes."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "figure.png"))

    monkeypatch.setattr(reproduce_lambda, "Experiment", full)
    assert launch.main(["reproduce", "lambda", "--out", str(tmp_path)]) == 2
    complaint = capsys.readouterr().err
    assert complaint == f"launch.py: cannot go on in {tmp_path}: No space left on device; the same command continues\n"


def assert_nearly_equal(actual, expected):
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name in expected:
            assert_nearly_equal(actual[name], expected[name])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for found, wanted in zip(actual, expected, strict=True):
            assert_nearly_equal(found, wanted)
    elif isinstance(expected, str) or expected is None:
        assert actual == expected
    else:
        assert actual == pytest.approx(expected, rel=1e-9)


def test_a_study_stops_on_request_and_refuses_other_settings(study, tmp_path):
    stop = threading.Event()
    stop.set()
    with pytest.raises(StopRequested):
        STUDIES[study](ReproduceConfig(out=str(tmp_path), runs=2), stop)
    assert not (tmp_path / "data.json").exists()
    with pytest.raises(RunError, match="results of other settings"):
        STUDIES[study](ReproduceConfig(out=str(tmp_path), runs=2, seed=5), stop)


@pytest.mark.slow
def test_the_anomaly_probability_rises_with_the_anomaly(monkeypatch, tmp_path, never):
    monkeypatch.setitem(reproduce_microdrone.SETTINGS, "learning_steps", 60_000)
    monkeypatch.setitem(reproduce_microdrone.SETTINGS, "watching_steps", 4_000)
    reproduce_microdrone.reproduce_microdrone(ReproduceConfig(out=str(tmp_path), runs=2), never)
    data = json.loads((tmp_path / "data.json").read_text())
    assert data["error_mean"][-1] < 0.5 * data["error_mean"][0]
    for anomaly in ("reward", "policy"):
        before, after = np.array_split(np.array(data[f"{anomaly}_mean"]), 2)
        assert 0.317 < before.mean() < after.mean() - 0.05


def test_the_fixed_point_error_falls_with_kappa():
    """Without Huber's rounding, and with many quantiles, their mean is the mean."""
    rounded = reproduce_microdrone.fixed_point_error(reproduce_microdrone.SETTINGS)
    sharp = reproduce_microdrone.fixed_point_error(reproduce_microdrone.SETTINGS | {"kappa": 0.05, "quantiles": 60})
    assert rounded == pytest.approx(0.364, abs=0.001)
    assert sharp < 0.2 * rounded


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            [],
            "no study was named; there is lambda, microdrone, reacher, off_policy, streams, pagerank, changed_game, discovery",
        ),
        (["lamda", "--out", "x"], "unknown study 'lamda'"),
        (["lambda", "--out", "x", "--runs", "1"], "--runs must be at least 2"),
        (["lambda"], "--out"),
    ],
)
def test_mistakes(capsys, arguments, complaint):
    assert launch.main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
