"""The command line of `compare` and `report`."""

import re

import pytest

import launch
from configs.tasks import DiscoveryConfig, QuestionConfig
from tests.command_line.refusal import NO_GPU, refusal, snapshot
from tests.helpers.trial_files import make_sweep, write_trial

pytestmark = pytest.mark.usefixtures("signals")


SWEEP = ["--games", "catch", "--tasks", "none", "--seeds", "2", "--frames", "400"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--games", "catch", "brekout"], "unknown game 'brekout'; did you mean breakout"),
        (["--games", "atari58"], "unknown game 'atari58'"),
        (["--games"], "--games is missing"),
        (["--tasks", "none", "magic"], "unknown task 'magic'; there is none"),
        (["--tasks"], "--tasks is missing"),
        (["--seeds", "0"], "--seeds must be positive, not 0"),
        (["--seeds", "1000000000"], "--seeds must be at most 10000, not 1000000000"),
        (["--out", "/etc/passwd/sweep"], "/etc/passwd is a file, not a directory"),
        (["--seeds", "some"], "--seeds.*'some'"),
        (["--first-seed", "-1"], "--first-seed must be at least 0, not -1"),
        (["--frames", "100"], "less than one batch of 160 steps"),
        (["--frames", "1.5"], "--frames: '1.5' is not a whole number of frames"),
        (["--frames", "0"], "--frames must be positive, not 0"),
        (["--cores-per-trial", "100000"], "a trial takes 100000 cores; there "),
        (["--learning-rate", "nan"], "--learning-rate must be a finite number"),
        (["--preset", "mine"], "invalid choice 'mine'"),
        (["--tasks", "none", "pixel_control", "--num-questions", "8"], "--num-questions has no effect with task none or pixel"),
        (["--games", "catch", "puddleworld", "--protocol", "machado"], "--protocol has no effect on catch, puddleworld"),
        (["--learner-threads", "2"], "--learner-threads has no effect with --cores-per-trial 1"),
        NO_GPU,
    ],
)
def test_invalid_flags_of_compare_are_refused(capsys, tmp_path, arguments, complaint):
    out = tmp_path / "sweep"
    assert re.search(complaint, refusal(capsys, "compare", *SWEEP, "--out", out, *arguments))
    assert not out.exists()


def test_a_setting_that_any_trial_of_a_sweep_uses_is_accepted(tmp_path):
    for arguments in (
        ["--tasks", "none", "gvf", "--num-questions", "8"],
        ["--games", "catch", "pong", "--protocol", "machado"],
        ["--cores-per-trial", "2", "--learner-threads", "1"],
        ["--preset", "paper", "--frames", "1000"],
        ["--ray-address", "127.0.0.1:1"],
    ):
        launch.parse_compare([*SWEEP, "--out", str(tmp_path / "sweep"), *arguments])


def test_a_sweep_with_recorded_settings_without_effect_continues(tmp_path):
    make_sweep(tmp_path / "sweep", tasks=("none",))
    assert launch.parse_compare([*SWEEP, "--out", str(tmp_path / "sweep"), "--stop-main-gradient"]).learner.stop_main_gradient


def test_flags_set_the_tasks_that_have_them(tmp_path):
    """And no others: a flag is what was given, not what differs from a default."""
    flags = ["--tasks", "none", "random_gvf", "gvf", "--num-questions", "8", "--no-scale-cumulants", "--meta-interval", "10"]
    config = launch.parse_compare([*SWEEP, "--out", str(tmp_path / "sweep"), *flags])
    assert config.auxiliary == {"num_questions": 8, "scale_cumulants": False, "meta_interval": 10}
    assert config.trial("catch", "gvf", 1).auxiliary == DiscoveryConfig(num_questions=8, scale_cumulants=False)
    assert config.trial("catch", "random_gvf", 1).auxiliary == QuestionConfig(num_questions=8, scale_cumulants=False)
    assert config.identity()["auxiliary"]["none"] == {}
    assert "meta_memory_gb" not in config.identity()["auxiliary"]["gvf"]


def test_a_sweep_overwrites_nothing(capsys, tmp_path):
    assert "--out is missing" in refusal(capsys, "compare", *SWEEP)
    (tmp_path / "file").write_text("mine")
    assert "is not empty and not a sweep" in refusal(capsys, "compare", *SWEEP, "--out", tmp_path)
    out = tmp_path / "sweep"
    sweep = make_sweep(out, tasks=("none",))
    assert "holds another sweep (--frames 1000, not 400)" in refusal(capsys, "compare", *SWEEP, "--out", out)
    write_trial(sweep.trials[0], score=None)
    (sweep.trials[0].path / "result.json").write_text("{")
    before = snapshot(tmp_path)
    assert "result.json is damaged" in refusal(capsys, "compare", *SWEEP, "--out", out, "--frames", "1000")
    assert snapshot(tmp_path) == before


def test_a_dry_run_prints_the_estimate_and_writes_nothing(capsys, tmp_path):
    assert launch.main(["compare", *SWEEP, "--torso", "shallow", "--out", str(tmp_path / "sweep"), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "games 1 x tasks 1 x seeds 2 = 2 trials of 400 frames" in text
    assert re.search(r"catch +│ none +│ +[\d,]+ ", text)
    assert re.search(r"800 frames, about 1 min, about \d+ MB of disk", text)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_for_a_cluster_that_was_not_joined(capsys, tmp_path):
    flags = [*SWEEP, "--torso", "shallow", "--out", str(tmp_path / "sweep")]
    cluster = ["--cluster-cpus", "512", "--cluster-gpus", "8", "--cores-per-trial", "64", "--gpus-per-trial", "1"]
    assert launch.main(["compare", *flags, "--dry-run", *cluster]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "of a trial on 64 cores and 1 GPU; 8 at once on 512 cores" in text
    assert "a GPU is assumed to learn as fast as 30 cores" in text
    assert "have no effect without --dry-run" in refusal(capsys, "compare", *flags, *cluster)
    assert "--cluster-gpus needs --cluster-cpus" in refusal(capsys, "compare", *flags, "--dry-run", *cluster[2:])
    alone = ["--gpus-per-trial", "1"]
    assert "needs --cores-per-trial of 2 or more" in refusal(capsys, "compare", *flags, "--dry-run", *alone)
    few = ["--cluster-cpus", "8", *cluster[2:]]
    complaint = "a trial takes 64 cores and 1 GPU; there are 8 cores and 8 GPUs"
    assert complaint in refusal(capsys, "compare", *flags, "--dry-run", *few)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_counts_varied_settings(capsys, tmp_path):
    varied = ["--vary", "learning_rate=3e-4,6e-4", "--vary", "torso=shallow,nature", "--vary", "frames=400,800"]
    assert launch.main(["compare", *SWEEP, *varied, "--out", str(tmp_path / "sweep"), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "games 1 x tasks and settings 8 x seeds 2 = 16 trials of 400 or 800 frames" in text
    assert len(re.findall(r"none-torso=\w+ +│", text)) == 2
    assert list(tmp_path.iterdir()) == []


def test_invalid_flags_of_report_are_refused(capsys, tmp_path):
    assert "no directory was named" in refusal(capsys, "report")
    assert "is not a directory" in refusal(capsys, "report", tmp_path / "nowhere")
    assert "holds no trial that can be read" in refusal(capsys, "report", tmp_path)
    assert list(tmp_path.iterdir()) == []
    sweep = make_sweep(tmp_path / "sweep", seeds=1)
    for trial in sweep.trials:
        write_trial(trial, score=1.0)
    assert "has no trial here; there is none, reverse_gvf" in refusal(capsys, "report", sweep.out, "--task", "magic")
    assert "did you mean 'reverse_gvf'?" in refusal(capsys, "report", sweep.out, "--task", "revers_gvf")
    assert not list(sweep.out.glob("report*"))


def test_a_report_prints_its_summary_and_path(capsys, tmp_path):
    sweep = make_sweep(tmp_path / "sweep", seeds=1)
    for trial in sweep.trials:
        write_trial(trial, score=1.0)
    assert launch.main(["report", str(sweep.out)]) == 0
    text = capsys.readouterr().out
    assert "Against none, final score: no test: one seed is too few (1 against 1 seeds)." in text
    assert "Against none, area under the learning curve: no test: one seed is too few (1 against 1 seeds)." in text
    assert f"report: {sweep.out / 'report.html'}" in text


def test_a_report_prints_its_problems(capsys, tmp_path):
    sweep = make_sweep(tmp_path / "sweep", seeds=13)
    for trial in sweep.trials:
        write_trial(trial, score=1.0)
    for trial in sweep.trials[:23]:
        trial.directory.result_path.write_text('{"a\x1b[31m')
    assert launch.main(["report", str(sweep.out)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == launch.MAX_PROBLEMS + 1
    assert lines[0].startswith(f"launch.py: {sweep.trials[0].name}: result.json is damaged")
    assert lines[0].endswith("it counts as unfinished")
    assert lines[-1] == "launch.py: 3 more problems are listed on the page"
    assert all(line.isprintable() for line in lines)
    page = (sweep.out / "report.html").read_text()
    assert page.index("result.json is damaged") < page.index("<h2>Verdicts")
    assert page.count("result.json is damaged") == 10 + 23  # At the top no more than ten, at the end all.
