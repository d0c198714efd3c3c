"""Archived trials: their content, reports from them, and damaged or foreign ones."""

import json
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from torch.utils.tensorboard import SummaryWriter

from configs.commands import ReportConfig
from configs.errors import RunError
from configs.train import LearnerConfig
from studies.compare import scheduler as compare_module
from studies.compare.archive import archive_path, read_archive, restore, write_archive
from studies.compare.scheduler import compare
from studies.compare.sweep import Sweep, TrialStatus
from studies.report.records import collect
from studies.report.report import make_report
from tests.helpers.trial_files import FRAMES, make_sweep, write_trial
from training.storage.files import parse_json
from training.storage.metrics_file import read_metrics
from training.storage.run_directory import RunDirectory


def finished_sweep(directory, archive, **settings):
    """A sweep whose trials are all finished and archived, of which only the archive is left."""
    sweep = make_sweep(directory / "sweep", seeds=2, archive=str(archive), **settings)
    for number, trial in enumerate(sweep.trials):
        write_trial(trial, score=float(number))
    with sweep.claimed("launch.py compare"):
        pass
    return sweep


@pytest.fixture
def archived(tmp_path):
    return finished_sweep(tmp_path, tmp_path / "archive")


def change(path, alter):
    """The archived trial with other content and the digest that it had."""
    content = parse_json(path.read_bytes())
    alter(content)
    path.write_text(json.dumps(content))


def rewrite(path, alter):
    """The archived trial with other content and a digest that fits."""
    trial = read_archive(path)
    alter(trial)
    write_archive(path, trial.record, trial.result, trial.lines)


def test_a_report_from_an_archive_equals_one_from_run_directories(archived, tmp_path):
    from_runs, from_archive = collect([archived.out]), collect([archived.archive])
    assert [trial.name for trial in from_archive.trials] == [trial.name for trial in from_runs.trials]
    for ours, theirs in zip(from_archive.trials, from_runs.trials, strict=True):
        assert ours.curve[0].tolist() == theirs.curve[0].tolist()
        assert ours.curve[1] == pytest.approx(theirs.curve[1], rel=1e-5)
        assert (ours.score, ours.settings, ours.origin, ours.seed) == (
            theirs.score,
            theirs.settings,
            theirs.origin,
            theirs.seed,
        )
    assert from_archive.commands == from_runs.commands == ["launch.py compare --games catch"]
    shutil.rmtree(archived.out)
    assert make_report(ReportConfig(directories=(str(archived.archive),), out=str(tmp_path / "page"))).page.is_file()


def test_the_last_image_of_the_questions_is_kept_for_the_first_seed(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", tasks=("reverse_gvf",), seeds=2, archive=str(tmp_path / "archive"))
    for trial in sweep.trials:
        write_trial(trial, score=1.0)
        with SummaryWriter(str(trial.path)) as board:
            for frame, grey in ((100, 0.0), (200, 1.0), (300, 0.5)):
                board.add_image("questions", np.full((4, 6, 3), grey), frame, dataformats="HWC")
    with sweep.claimed("launch.py compare"):
        pass
    (path,) = sweep.archive.glob("*.png")
    assert path.name == "catch-reverse_gvf-seed1.questions.png"
    image = np.asarray(Image.open(path))
    assert image.shape == (4, 6, 3)
    assert (image == 127).all()
    assert len(collect([sweep.archive]).trials) == 2


def test_curves_are_kept_to_six_digits_and_other_metrics_are_not(tmp_path):
    lines = [
        {"frame": 100, "charts/episode_return": 1.23456789, "time/learn": 0.5, "meta/loss": float("nan")},
        {"frame": 200, "charts/episode_return": 2, "questions/discount_mean": 0.75},
    ]
    path = archive_path(tmp_path, "t")
    config = make_sweep(tmp_path / "sweep").trials[0].config
    write_archive(path, {"config": config.to_dict()}, {"frames": 200}, lines)
    assert read_archive(path).lines[1] == {"frame": 200, "charts/episode_return": 2.0, "questions/discount_mean": 0.75}
    first = read_archive(path).lines[0]
    assert first.keys() == {"frame", "charts/episode_return"}
    assert first["charts/episode_return"] == 1.23457
    assert read_archive(path).config == config


def test_archived_trials_are_not_trained_again(archived, monkeypatch, capsys):
    monkeypatch.setattr(compare_module, "start_ray", lambda *_: pytest.fail("a trial was started"))
    shutil.rmtree(archived.out)
    assert set(archived.statuses().values()) == {TrialStatus.FINISHED}
    assert not archived.out.exists()
    compare(archived.config, "again", threading.Event())
    assert "nothing is left to do: 4 of 4 trials finished" in capsys.readouterr().out
    assert len(collect([archived.out]).trials) == 4


def test_a_trial_that_is_archived_is_restored_over_one_that_has_begun(archived, monkeypatch):
    """Also if a kill interrupted an earlier restoration, at any of its files."""
    monkeypatch.setattr(compare_module, "start_ray", lambda *_: pytest.fail("a trial was started"))
    trial = archived.trials[0]
    expected = {path.name: path.read_bytes() for path in trial.path.iterdir() if path.is_file()}
    for missing in (["result.json"], ["result.json", "metrics.jsonl"]):
        for name in missing:
            (trial.path / name).unlink()
        assert archived.statuses()[trial.name] is TrialStatus.FINISHED
        compare(archived.config, "again", threading.Event())
        assert (trial.path / "result.json").read_bytes() == expected["result.json"]
        assert read_metrics(trial.path / "metrics.jsonl")[0][-1]["frame"] == FRAMES


def test_restoring_begins_with_the_config_and_ends_with_the_result(archived, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("studies.compare.archive.write_atomically", lambda path, data: written.append(path.name))
    monkeypatch.setattr(RunDirectory, "write_json", staticmethod(lambda path, values: written.append(path.name)))
    restore(read_archive(archive_path(archived.archive, archived.trials[0].name)), RunDirectory(tmp_path / "new"))
    assert written == ["config.json", "metrics.jsonl", "result.json"]


def test_restoring_over_a_file_is_one_line(archived, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write to .*file"):
        restore(read_archive(archive_path(archived.archive, archived.trials[0].name)), RunDirectory(tmp_path / "file"))


@pytest.mark.parametrize(
    "alter",
    [
        lambda trial: trial.record["config"]["run"].update(seed=10**400),
        lambda trial: trial.record["config"]["learner"].update(unroll=10**400),
        lambda trial: trial.lines[-1].update(frame=10**400),
        lambda trial: trial.record["config"]["env"].update(game="\ud800"),
        lambda trial: trial.record["config"]["env"].update(game="x" * 100_000),
    ],
)
def test_numbers_and_names_beyond_reason_cost_one_trial_of_a_report(archived, alter):
    rewrite(archive_path(archived.archive, archived.trials[0].name), alter)
    records = collect([archived.archive])
    assert len(records.trials) == 3
    assert len(records.unreadable) == 1
    assert max(map(len, records.problems)) < 1000


def as_written_by_an_earlier_version(directory):
    """The directory of a sweep with grid.json, and the settings under "grid", in the place of sweep.json and "sweep"."""
    record = json.loads((directory / "sweep.json").read_text())
    record["grid"] = record.pop("sweep")
    (directory / "sweep.json").unlink()
    (directory / "grid.json").write_text(json.dumps(record))


def test_the_directory_of_an_earlier_version_is_read_and_continued(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", seeds=2)
    write_trial(sweep.trials[0], score=1.0)
    as_written_by_an_earlier_version(sweep.out)
    before = (sweep.out / "grid.json").read_bytes()
    found = collect([sweep.out])
    assert (found.problems, len(found.trials), len(found.missing)) == ([], 1, 3)
    assert found.commands == ["launch.py compare --games catch"]
    with sweep.claimed("again"):
        assert sweep.statuses()[sweep.trials[0].name] is TrialStatus.FINISHED
    assert (sweep.out / "grid.json").read_bytes() == before
    assert not (sweep.out / "sweep.json").exists()
    with pytest.raises(RunError, match=r"holds another sweep .--seeds 2, not 3"):
        Sweep(replace(sweep.config, seeds=3)).statuses()


def test_the_archive_of_an_earlier_version_is_read_and_continued(archived, monkeypatch):
    as_written_by_an_earlier_version(archived.archive)
    assert len(collect([archived.archive]).trials) == 4
    shutil.rmtree(archived.out)
    monkeypatch.setattr(compare_module, "start_ray", lambda *_: pytest.fail("a trial was started"))
    compare(archived.config, "again", threading.Event())
    assert len(collect([archived.out]).trials) == 4
    assert not (archived.archive / "sweep.json").exists()
    with pytest.raises(RunError, match=r"--eval-episodes 30, not 7.*choose another --archive"):
        Sweep(replace(archived.config, eval_episodes=7, out=str(archived.out / "other"))).statuses()


def test_a_sweep_that_gets_an_archive_later_fills_it(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", seeds=2)
    for trial in sweep.trials[:3]:
        write_trial(trial, score=1.0)
    write_trial(sweep.trials[3], score=None)
    with sweep.claimed("first"):
        pass
    again = make_sweep(tmp_path / "sweep", seeds=2, archive=str(tmp_path / "archive"))
    with again.claimed("second"):
        pass
    found = collect([tmp_path / "archive"])
    assert [trial.name for trial in found.trials] == sorted(trial.name for trial in sweep.trials[:3])
    assert found.missing == [sweep.trials[3].name]


@pytest.mark.parametrize(
    ("alter", "complaint"),
    [
        (lambda content: content["result"].update(training_return=99.0), "its digest does not match its content"),
        (lambda content: content["curves"]["frame"].pop(), "its digest does not match its content"),
        (lambda content: content.update(format=7), "has format 7, which a newer version wrote"),
        (lambda content: content.pop("digest"), "its digest does not match its content"),
    ],
)
def test_a_damaged_archive_is_named_left_out_and_never_trained_over(archived, alter, complaint):
    path = archive_path(archived.archive, archived.trials[0].name)
    change(path, alter)
    before = path.read_bytes()
    found = collect([archived.archive])
    assert [complaint in problem and path.name in problem for problem in found.problems] == [True]
    assert found.unreadable == [archived.trials[0].name]
    assert len(found.trials) == 3
    shutil.rmtree(archived.out)
    with pytest.raises(RunError, match=complaint):
        archived.statuses()
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": 1}', b"\x00" * 100, b"[" * 100_000])
def test_files_that_are_no_archived_trial_are_refused(archived, text):
    path = archive_path(archived.archive, archived.trials[0].name)
    path.write_bytes(text)
    with pytest.raises(RunError, match=path.name):
        read_archive(path)


@pytest.mark.parametrize(
    ("alter", "complaint"),
    [
        (lambda trial: trial.lines.reverse(), "frames are not in order"),
        (lambda trial: trial.lines[0].update(frame="one"), "frames are not in order"),
        (lambda trial: trial.record.pop("config"), "config"),
        (lambda trial: trial.record["config"].update(task="nonsense"), "nonsense"),
    ],
)
def test_content_is_checked_besides_the_digest(archived, alter, complaint):
    path = archive_path(archived.archive, archived.trials[0].name)
    rewrite(path, alter)
    with pytest.raises(RunError, match=complaint):
        read_archive(path)


def test_links_are_not_followed(archived, tmp_path):
    path = archive_path(archived.archive, archived.trials[0].name)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is a link"):
        read_archive(path)


def test_the_archive_of_another_sweep_is_refused(archived, tmp_path):
    other = make_sweep(tmp_path / "other", seeds=2, archive=str(archived.archive), eval_episodes=7)
    with pytest.raises(RunError, match=r"--eval-episodes 30, not 7.*choose another --archive"):
        other.statuses()


def test_an_archived_trial_of_other_settings_is_refused(archived):
    shutil.rmtree(archived.out)
    path = archive_path(archived.archive, archived.trials[0].name)
    rewrite(path, lambda trial: trial.record["config"]["learner"].update(learning_rate=1e-3))
    with pytest.raises(RunError, match=r"is not part of this sweep: the run was started with --learning-rate 0\.001"):
        archived.statuses()


def test_archives_of_another_protocol_are_not_pooled(tmp_path):
    sweeps = [
        finished_sweep(tmp_path / name, tmp_path / f"{name}-archive", games=("pong",), protocol=name)
        for name in ("impala", "machado")
    ]
    found = collect([sweep.archive for sweep in sweeps])
    assert {trial.game_label for trial in found.trials} == {"pong (impala)", "pong (machado)"}


def test_archives_of_other_settings_are_confounded(tmp_path):
    first = finished_sweep(tmp_path / "a", tmp_path / "a-archive", tasks=("none",))
    learner = LearnerConfig(unroll=5, batch_size=8)
    second = finished_sweep(tmp_path / "b", tmp_path / "b-archive", tasks=("reverse_gvf",), learner=learner)
    found = collect([first.archive, second.archive])
    assert any("trials differ in --unroll" in problem for problem in found.problems)


def test_several_versions_of_the_code_are_reported(archived):
    assert not collect([archived.archive]).problems

    def with_commit(trial):
        trial.record["commit"] = "f" * 40

    rewrite(archive_path(archived.archive, archived.trials[0].name), with_commit)
    (problem,) = collect([archived.archive]).problems
    assert problem.startswith("the trials are from several versions of the code (3 by ")
    assert "1 by ffffffffff" in problem


def test_a_trial_resumed_with_other_code_is_reported(archived):
    def resumed(trial):
        trial.record["resumed"] = [{"frame": 5, "commit": "e" * 40}]

    for trial in archived.trials:
        rewrite(archive_path(archived.archive, trial.name), resumed)
    (problem,) = collect([archived.archive]).problems
    assert "4 by" in problem
    assert "then eeeeeeeeee" in problem


def test_several_versions_of_a_library_are_reported(archived):
    rewrite(archive_path(archived.archive, archived.trials[0].name), lambda trial: trial.record["versions"].update(torch="9.0"))
    (problem,) = collect([archived.archive]).problems
    assert problem.startswith("the trials are from several versions of torch (3 with ")
    assert problem.endswith("1 with 9.0)")


def test_a_disk_that_is_full_under_the_archive_does_not_end_the_sweep(archived, monkeypatch, capsys):
    def full(*_):
        raise RunError("cannot write archive: No space left on device")

    monkeypatch.setattr(Sweep, "keep", full)
    compare_module.SweepRun(archived, None, set())._archive(archived.trials[0])
    assert "No space left on device; the trial is archived when the sweep is continued" in capsys.readouterr().err
