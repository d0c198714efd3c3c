"""The streams study: data and splits, measures by hand, detectors, and the whole study on WaterFlow."""

import copy
import json
import pickle

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import launch
from configs.commands import ReproduceConfig
from studies.reproduce.run_store import RunStore
from studies.reproduce.streams import study
from studies.reproduce.streams.data import Stream, shuttle, water_flow
from studies.reproduce.streams.detectors import Entry, ForwardTD, ZScore, entries
from studies.reproduce.streams.measures import aftermath, measure, roc_auc, stretches


def test_water_flow_has_four_anomalous_stretches_and_none_in_training_or_calibration():
    stream = water_flow()
    assert len(stream.readings) == 1268
    lengths = [end - start for start, end in stretches(stream.labels)]
    assert lengths == [18, 13, 1, 16]
    normal = stream.readings[~stream.labels, 1]
    assert normal.min() > 98.7
    assert normal.max() < 108
    assert not stream.labels[np.concatenate([stream.train, stream.calibrate])].any()
    parts = np.concatenate([stream.train, stream.calibrate, *stream.test])
    assert sorted(parts) == list(range(1268))
    hours = np.diff(stream.readings[:, 0]) / 3600
    assert hours.min() == 1
    assert (hours > 1).sum() == 10
    assert stream.features(stream.readings).sum(-1).tolist() == [2.0] * 1268


def test_shuttle_is_split_by_order_and_trained_on_normal_rows():
    stream = shuttle()
    assert stream.readings.shape == (49_097, 9)
    assert stream.labels.sum() == 3511
    assert not stream.labels[np.concatenate([stream.train, stream.calibrate])].any()
    assert stream.train[-1] < stream.calibrate[0] <= stream.calibrate[-1] < stream.test[0][0]


def test_roc_auc_agrees_with_scikit_learn_also_with_ties():
    rng = np.random.default_rng(0)
    labels = rng.random(300) < 0.2
    scores = rng.integers(0, 8, 300) + labels
    assert roc_auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))
    assert roc_auc(np.array([1.0, 2.0, 3.0]), np.array([False, False, True])) == 1.0
    with pytest.raises(ValueError, match="normal and anomalous"):
        roc_auc(scores, np.ones(300, dtype=bool))


def test_stretches_and_aftermath_by_hand():
    labels = np.array([1, 0, 0, 1, 1, 0, 0, 0, 1], dtype=bool)
    assert stretches(labels) == [(0, 1), (3, 5), (8, 9)]
    assert aftermath(labels, 2).astype(int).tolist() == [0, 1, 1, 0, 0, 1, 1, 0, 0]


def stream_of(labels, after=1, **values):
    labels = np.array(labels, dtype=bool)
    readings = np.column_stack([np.arange(len(labels)), np.zeros(len(labels))]).astype(float)
    rows = np.arange(len(labels))
    settings = {"columns": [1], "context": [], "train": rows, "calibrate": rows, "test": [rows], "aftermath": after}
    return Stream("made up", values.pop("readings", readings), labels, **(settings | values))


def test_measures_by_hand():
    """Two stretches; the first is found at its second reading, the second is not. One of 3 normal readings has an alarm."""
    stream = stream_of([0, 0, 1, 1, 1, 0, 0, 1])
    scores = np.array([0.1, 0.9, 0.2, 0.7, 0.9, 0.8, np.nan, 0.3])
    found = measure(stream, [scores], threshold=0.5)
    assert (found.stretches, found.found, found.delay) == (2, 1, 1.0)
    assert found.false_alarms_a_week == pytest.approx(168 / 3)
    assert found.aftermath_alarms == 1.0
    assert found.auc == pytest.approx(roc_auc_score(stream.labels, np.nan_to_num(scores, nan=-1)))
    kept = [0, 1, 2, 3, 4, 6, 7]
    assert found.auc_without_aftermath == pytest.approx(roc_auc_score(stream.labels[kept], np.nan_to_num(scores, nan=-1)[kept]))


def test_the_seasonal_z_score_by_hand():
    readings = np.array([[0, 1.0], [1, 10.0], [0, 3.0], [1, 14.0]])
    detector = ZScore(stream_of([0, 0, 0, 0], readings=readings, season=0))
    detector.fit(readings)
    assert detector.score(np.array([[0, 2.0], [0, 5.0], [1, 6.0]]), learn=False).tolist() == [0.0, 3.0, 3.0]
    assert detector.score(np.array([[0, 5.0], [0, 5.0]]), learn=True)[1] < 3.0


def test_the_forward_td_error_is_that_of_the_exact_value():
    """0 -> 1 -> 0 -> ..., with cumulants -1 and 1 once centred: without noise every TD error is 0 after learning."""
    readings = np.array([[t, t % 2] for t in range(200)], dtype=float)
    stream = stream_of(np.zeros(200), readings=readings, features=lambda rows: np.eye(2)[rows[:, 1].astype(int)])
    detector = ForwardTD(stream, horizon=2)
    detector.fit(readings)
    # v(0) = 1 + v(1) / 2, v(1) = -1 + v(0) / 2.
    assert detector._weights[0] == pytest.approx([2 / 3, -2 / 3], abs=1e-3)
    gap = stream_of(np.zeros(200), readings=readings, features=stream.features, time=0)
    late = ForwardTD(gap, horizon=2)
    late.fit(readings)
    assert np.isnan(late.score(readings[[0, 1, 5, 6]], learn=False)).tolist() == [True, False, True, False]


@pytest.mark.parametrize("name", list(entries(water_flow(), [24])))
def test_every_detector_scores_low_flow_above_normal_flow(name, monkeypatch):
    monkeypatch.setattr("studies.reproduce.streams.detectors.LEARNT", 700)
    stream = water_flow()
    detector = entries(stream, [2])[name.replace("24", "2")].make(stream, 0)
    detector.fit(stream.readings[stream.train])
    low = stream.readings[stream.train[:48]].copy()
    low[24:, 1] = 24.0
    assert stream.readings[:2].tobytes() in pickle.dumps(stream)
    assert stream.readings[:2].tobytes() not in pickle.dumps(detector)  # Else its size would be that of the data.
    for learn in (False, True):
        score = copy.deepcopy(detector).score(low, learn)
        assert np.nanmin(score[24:30]) > np.nanmedian(score[:24])


def test_a_run_is_a_cell_and_a_seed_and_more_seeds_append_runs():
    cells = [("a", "x", Entry(None)), ("a", "y", Entry(None, seeded=True)), ("b", "z", Entry(None, seeded=True))]
    found = [study.cell_and_seed(cells, number) for number in range(7)]
    assert found == [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]


def test_the_study_writes_its_results_and_a_rerun_continues(tmp_path, monkeypatch, never):
    monkeypatch.setitem(study.SETTINGS, "horizons", {"WaterFlow": [2]})
    # Workers of Ray would not see a shorter training.
    monkeypatch.setattr(study.Experiment, "_make", made_here)
    monkeypatch.setattr("studies.reproduce.streams.detectors.LEARNT", 700)
    chosen = ("retrospective, horizon 2", "seasonal z-score", "HalfSpaceTrees, flow only")
    monkeypatch.setattr(study, "entries", lambda *of: {name: found for name, found in entries(*of).items() if name in chosen})
    summary = study.reproduce_streams(ReproduceConfig(out=str(tmp_path), runs=2), never)
    assert (tmp_path / "summary.md").read_text() == summary
    assert "By AUC **" in summary
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads((tmp_path / "data.json").read_text())["rows"]
    assert len(rows) == 2 * 3
    assert {len(row["aucs"]) for row in rows if "HalfSpaceTrees" in row["detector"]} == {2}
    assert {len(row["aucs"]) for row in rows if "z-score" in row["detector"]} == {1}
    kept = RunStore(tmp_path).read()
    assert study.reproduce_streams(ReproduceConfig(out=str(tmp_path), runs=2), never) == summary
    study.reproduce_streams(ReproduceConfig(out=str(tmp_path), runs=3), never)
    assert kept.items() < RunStore(tmp_path).read().items()


def made_here(self, chunks, work, stop, arguments):
    for numbers in chunks:
        yield from zip(numbers, work(self.settings, numbers, *arguments), strict=True)


def test_without_the_extra_the_command_says_what_to_install(tmp_path, monkeypatch, capsys, signals):
    monkeypatch.setattr("studies.reproduce.experiment.find_spec", lambda name: None if name == "river" else object())
    assert launch.main(["reproduce", "streams", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error == "launch.py: reproduce streams needs river: pip install 'hindcast[streams]'\n"
    assert not (tmp_path / "out").exists()
