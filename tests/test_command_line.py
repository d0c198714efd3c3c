"""The command line: its mistakes, its interruptions, its lists."""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

import launch
from actors.evaluator import Evaluation
from envs.grid_games import GRIDS
from learners.learner import Learner
from tests.running import ROOT, TINY, interrupted
from tests.trial_files import make_sweep, write_trial
from training.run_directory import provenance

pytestmark = pytest.mark.usefixtures("signals")
NO_GPU = pytest.param(
    ["--device", "cuda"],
    "torch finds no CUDA device",
    marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
)


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


def mistake(capsys, *arguments):
    """Runs a command that must be refused; returns its one line of complaint."""
    assert launch.main(list(map(str, arguments))) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines(keepends=True)
    if lines[0].startswith(("starting", "joining Ray")):
        del lines[0]
    assert len(lines) == 1
    assert lines[0].startswith("launch.py: ")
    return lines[0]


def snapshot(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--game", "brekout"], "did you mean breakout"),
        (["--game", "gym:CarRacing-v9"], "did you mean gym:CarRacing-v3"),
        (["--game", "gym:CartPole-v1"], "only uint8 images"),
        (["--game", "gym:Pendulum-v1"], "only Discrete"),
        (["--nonsense", "1"], r"--nonsense, 1 \("),
        (["--num-question", "3"], r"--num-question, 3; did you mean --num-questions\? \("),
        (["--framse", "5", "--sed", "3"], r"--framse, 5, --sed, 3; did you mean (--seed or --frames|--frames or --seed)\? \("),
        (["--stop-main"], r"--stop-main; did you mean --stop-main-gradient\? \("),
        (["--frames", "0"], "--frames must be positive, not 0"),
        (["--frames", "-3"], "--frames must be positive, not -3"),
        (["--frames", "many"], "--frames.*'many'"),
        (["--frames", "1.5"], "--frames: '1.5' is not a whole number of frames"),
        (["--frames", "0.0001k"], "--frames: '0.0001k' is not a whole number of frames"),
        (["--log-frames", "inf"], "--log-frames: 'inf' is not a count of frames; write it like 10_000_000, 1e7, 10M"),
        (["--frames", "1e999999999"], "--frames: '1e999999999' is too large"),
        (["--frames", "100"], "less than one batch of 160 steps"),
        (["--learning-rate", "nan"], "--learning-rate must be a finite number"),
        (["--learning-rate", "-1"], "--learning-rate must be positive"),
        (["--discount", "1"], r"--discount must lie in \[0, 1\)"),
        (["--vtrace-lambda", "2"], r"--vtrace-lambda must lie in \[0, 1\]"),
        (["--num-actors", "-1"], "--num-actors must be at least 0, not -1"),
        (["--torso", "huge"], "invalid choice 'huge'"),
        (["--task", "magic"], "invalid choice 'magic'"),
        (["--preset", "mine"], "invalid choice 'mine'"),
        (["--num-questions", "0"], "--num-questions must be positive, not 0"),
        (["--task", "gvf", "--meta-interval", "8", "--meta-period", "7"], "--meta-period 7 is less than --meta-interval 8"),
        (["--meta-interval", "0"], "--meta-interval must be positive, not 0"),
        (["--answer-lambda", "1.5"], r"--answer-lambda must lie in \[0, 1\]"),
        (["--answer-lambda", "-0.1"], r"--answer-lambda must lie in \[0, 1\]"),
        (["--task", "reverse_gvf", "--compile"], "--compile has no second derivatives"),
        NO_GPU,
        (["--resume"], "holds no run"),
        (["--pool", "ray", "--ray-address", "127.0.0.1:1"], "cannot join Ray at 127.0.0.1:1"),
    ],
)
def test_invalid_flags_of_train_are_refused(capsys, run_dir, arguments, complaint):
    assert re.search(complaint, mistake(capsys, "train", "--run-dir", run_dir, *arguments))
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--stop-main-gradient"], "--stop-main-gradient has no effect with task none; it is for reward_prediction, pixel"),
        (
            ["--task", "pixel_control", "--num-questions", "8"],
            "--num-questions has no effect with task pixel_control; it is for",
        ),
        (
            ["--task", "random_gvf", "--meta-interval", "5"],
            "--meta-interval has no effect with task random_gvf; it is for gvf, rev",
        ),
        (
            ["--task", "gvf", "--pixel-control-weight", "1"],
            "--pixel-control-weight has no effect with task gvf; it is for pixel",
        ),
        (
            ["--task", "reward_prediction", "--picture-frames", "100"],
            "--picture-frames has no effect with task reward_prediction",
        ),
        (["--protocol", "machado"], "--protocol has no effect on catch; it is for Atari games"),
        (["--learner-threads", "2"], "--learner-threads has no effect with --pool serial"),
        (["--ray-address", "127.0.0.1:1"], "--ray-address has no effect with --pool serial"),
        (["--no-pin-actors"], "--pin-actors has no effect with --pool serial"),
        (["--preset", "paper", "--num-actors", "3"], "--num-actors has no effect with --pool serial"),
    ],
)
def test_settings_without_effect_are_refused(capsys, run_dir, arguments, complaint):
    assert complaint in mistake(capsys, "train", "--run-dir", run_dir, *TINY, *arguments)
    assert not run_dir.exists()


def test_settings_with_effect_and_explicit_defaults_are_accepted():
    for arguments in (
        ["--num-questions", "32", "--in-flight", "2", "--protocol", "impala"],
        ["--task", "random_gvf", "--num-questions", "8", "--stop-main-gradient"],
        ["--task", "gvf", "--meta-interval", "5", "--picture-frames", "100"],
        ["--pool", "ray", "--num-actors", "3", "--learner-threads", "2"],
        ["--game", "pong", "--protocol", "machado"],
        ["--preset", "paper"],
    ):
        launch.parse_train([*TINY, *arguments])


def test_a_run_with_recorded_settings_without_effect_resumes(capsys, run_dir):
    assert launch.main(["train", "--run-dir", str(run_dir), *TINY, "--eval-episodes", "0"]) == 0
    record = json.loads((run_dir / "config.json").read_text())
    record["config"]["auxiliary"]["num_questions"] = 8
    record["config"]["actors"]["num_actors"] = 3
    (run_dir / "config.json").write_text(json.dumps(record))
    resume = ["train", "--run-dir", str(run_dir), "--resume", "--frames", "600"]
    capsys.readouterr()
    assert "--num-actors has no effect with --pool serial" in mistake(capsys, *resume, "--num-actors", "2")
    assert launch.main(resume) == 0
    assert json.loads((run_dir / "result.json").read_text())["frames"] == 600


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train", *TINY, "--run-dir"], "starting: importing torch\n"),
        (["train", "--resume", "--run-dir"], "starting: importing torch\n"),
        (["compare", "--games", "catch", "--tasks", "none", "--out"], "starting: importing torch and ray\n"),
    ],
)
def test_slow_imports_are_announced(tmp_path, arguments, line):
    """In a process that cannot import torch, the line is all that comes of it."""
    code = f"""
import sys
import launch
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "ray"):
            print("IMPORT", file=sys.stderr, flush=True)
            sys.exit(3)
sys.meta_path.insert(0, Refuses())
launch.main({[*arguments, str(tmp_path / "run")]})
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, line + "IMPORT\n" * done.stderr.count("IMPORT"))


def test_ray_is_announced_before_it_is_started(capsys, run_dir):
    flags = ["--pool", "ray", "--num-actors", "1", "--ray-address", "127.0.0.1:1", "--run-dir", str(run_dir)]
    assert launch.main(["train", *TINY, *flags]) == 2
    assert capsys.readouterr().err.startswith("joining Ray at 127.0.0.1:1 with 1 actor\nlaunch.py: cannot join Ray")


def test_unknown_commands_and_no_command(capsys):
    assert "there is train, evaluate" in mistake(capsys, "fly")
    assert launch.main([]) == 2
    assert launch.main(["--help"]) == 0
    assert "benchmark" in capsys.readouterr().out


def test_a_directory_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write" in mistake(capsys, "train", "--run-dir", tmp_path / "file" / "run", *TINY)


WITH_A_DIRECTORY = [
    ["train", *TINY, "--run-dir"],
    ["train", "--resume", "--run-dir"],
    ["evaluate", "--run-dir"],
    ["compare", "--games", "catch", "--tasks", "none", "--out"],
    ["report"],
]
"""Commands that a directory completes."""


@pytest.mark.parametrize("command", WITH_A_DIRECTORY)
def test_a_directory_name_that_is_too_long(capsys, tmp_path, command):
    assert "File name too long" in mistake(capsys, *command, tmp_path / ("x" * 300))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", WITH_A_DIRECTORY)
def test_a_file_where_a_directory_is_wanted(capsys, tmp_path, command):
    path = tmp_path / "file"
    path.write_text("mine")
    assert f"{path} is a file" in mistake(capsys, *command, path)
    assert path.read_text() == "mine"


def test_a_directory_with_other_files_is_refused(capsys, tmp_path):
    for name in ("thesis.tex", ".thesis.tmp"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / name).write_text("irreplaceable")
        assert "not a run" in mistake(capsys, "train", "--run-dir", directory, *TINY)
        assert [path.name for path in directory.iterdir()] == [name]


def test_a_run_is_trained_resumed_evaluated_and_damaged(capsys, run_dir):
    assert launch.main(["train", "--run-dir", str(run_dir), *TINY, "--eval-episodes", "3"]) == 0
    text = capsys.readouterr().out
    assert "\ncatch, 3 games: mean" in text
    assert "best possible 1.000" in text
    before = snapshot(run_dir)

    assert "already holds a run" in mistake(capsys, "train", "--run-dir", run_dir, *TINY)
    assert "--torso shallow; it cannot resume with deep" in mistake(
        capsys, "train", "--run-dir", run_dir, "--resume", "--torso", "deep"
    )
    assert "--game catch; it cannot resume with pong" in mistake(
        capsys, "train", "--run-dir", run_dir, "--resume", "--game", "pong"
    )
    assert "--task none; it cannot resume with gvf" in mistake(
        capsys, "train", "--run-dir", run_dir, "--resume", "--task", "gvf"
    )
    assert "--frames 19 is less than one batch of 20 steps" in mistake(
        capsys, "train", "--run-dir", run_dir, "--resume", "--frames", "19"
    )
    assert "--frames 399 is less than the 400 frames that the run has done" in mistake(
        capsys, "train", "--run-dir", run_dir, "--resume", "--frames", "399"
    )
    assert snapshot(run_dir) == before

    assert launch.main(["train", "--run-dir", str(run_dir), "--resume", "--frames", "600"]) == 0
    assert json.loads((run_dir / "result.json").read_text())["frames"] == 600
    capsys.readouterr()

    assert launch.main(["evaluate", "--run-dir", str(run_dir), "--episodes", "4", "--video", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["scores"]) == 4
    assert result["frame"] == 600
    assert Path(result["video"]).stat().st_size > 0

    for checkpoint in (run_dir / "checkpoints").glob("frame_*"):
        os.truncate(checkpoint, 50)
    before = snapshot(run_dir)
    assert "damaged" in mistake(capsys, "train", "--run-dir", run_dir, "--resume")
    assert "damaged" in mistake(capsys, "evaluate", "--run-dir", run_dir)
    (run_dir / "config.json").write_text('{"config": {"task": "rm -rf"}}')
    assert "config.json is damaged" in mistake(capsys, "train", "--run-dir", run_dir, "--resume")
    (run_dir / "config.json").write_bytes(before[run_dir / "config.json"])
    assert snapshot(run_dir) == before


def test_a_run_resumed_with_more_frames_reports_its_learning_rate(capsys, monkeypatch, run_dir):
    """6e-4 at first: after 100 of 400 frames it was 4.5e-4, and 100 of 1600 make it 5.6e-4."""
    step, updates = Learner.step, []
    interrupted(monkeypatch, "train", "--run-dir", run_dir, *TINY, "--eval-episodes", "0")
    capsys.readouterr()
    monkeypatch.setattr(Learner, "step", lambda self, batch: updates.append(step(self, batch)) or updates[-1])
    assert launch.main(["train", "--run-dir", str(run_dir), "--resume", "--frames", "1600"]) == 0
    assert (
        "learning rate: was to reach 0 at frame 400, now at 1,600; continues from 0.00056 instead of 0.00045\n"
        in capsys.readouterr().err
    )
    assert updates[0]["optimiser/learning_rate"] == pytest.approx(6e-4 * 15 / 16)
    for frames in ([], ["--frames", "1600"]):
        assert launch.main(["train", "--run-dir", str(run_dir), "--resume", *frames]) == 0
        assert "learning rate" not in capsys.readouterr().err


def test_a_run_whose_last_batch_overshot_resumes(capsys, run_dir):
    assert launch.main(["train", "--run-dir", str(run_dir), *TINY, "--frames", "390", "--eval-episodes", "0"]) == 0
    resume = ["train", "--run-dir", str(run_dir), "--resume"]
    for frames in ([], ["--frames", "390"], ["--frames", "400"]):
        assert launch.main([*resume, *frames]) == 0
    capsys.readouterr()
    assert "--frames 391 is less than the 400 frames" in mistake(capsys, *resume, "--frames", "391")


def test_an_unfinished_run_is_evaluated_at_a_given_checkpoint(capsys, run_dir):
    assert launch.main(["train", "--run-dir", str(run_dir), *TINY, "--checkpoint-minutes", "1e-9", "--eval-episodes", "0"]) == 0
    config = json.loads((run_dir / "config.json").read_text())
    config["config"]["run"]["frames"] = 5000
    (run_dir / "config.json").write_text(json.dumps(config))
    evaluate = ["evaluate", "--run-dir", str(run_dir), "--episodes", "2"]
    capsys.readouterr()

    assert launch.main(evaluate) == 0
    assert "the run is at frame 400 of 5,000; playing with the weights of frame 400" in capsys.readouterr().err
    assert launch.main([*evaluate, "--checkpoint", "380", "--greedy", "--video", "--json"]) == 0
    captured = capsys.readouterr()
    assert "the run is at frame 400 of 5,000; playing with the weights of frame 380" in captured.err
    result = json.loads(captured.out)
    assert (result["checkpoint"], result["frame"], result["greedy"]) == ("380", 380, True)
    assert result["video"] == str(run_dir / "videos" / "frame_000000000380_greedy.mp4")
    assert json.loads((run_dir / "evaluation.json").read_text())["greedy"] is True

    before = snapshot(run_dir)
    assert "no checkpoint of frame 390; there are those of 400, 380, 360" in mistake(capsys, *evaluate, "--checkpoint", "390")
    assert "--checkpoint must be newest, best or a frame, not 'last'" in mistake(capsys, *evaluate, "--checkpoint", "last")
    assert snapshot(run_dir) == before


def test_invalid_flags_of_other_commands_are_refused(capsys, tmp_path):
    assert "holds no run" in mistake(capsys, "evaluate", "--run-dir", tmp_path)
    assert "--episodes must be positive" in mistake(capsys, "evaluate", "--run-dir", tmp_path, "--episodes", "0")
    assert "--run-dir" in mistake(capsys, "evaluate")
    assert "--seed must be at least 0, not -1" in mistake(capsys, "evaluate", "--run-dir", tmp_path, "--seed", "-1")
    assert "--seed must be at least 0, not -1" in mistake(capsys, "reproduce", "lambda", "--out", tmp_path, "--seed", "-1")
    assert "--seconds must be positive" in mistake(capsys, "benchmark", "--seconds", "0")
    assert "did you mean breakout" in mistake(capsys, "benchmark", "--game", "brekout")
    assert "only uint8 images" in mistake(capsys, "benchmark", "--game", "gym:CartPole-v1")
    assert "--frobnicate" in mistake(capsys, "games", "--frobnicate")


SWEEP = ["--games", "catch", "--tasks", "none", "--seeds", "2", "--frames", "400"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--games", "catch", "brekout"], "unknown game 'brekout'; did you mean breakout"),
        (["--games", "atari58"], "unknown game 'atari58'"),
        (["--games"], "--games is missing"),
        (["--tasks", "none", "magic"], "invalid choice 'magic'"),
        (["--tasks"], "--tasks is missing"),
        (["--seeds", "0"], "--seeds must be positive, not 0"),
        (["--seeds", "some"], "--seeds.*'some'"),
        (["--first-seed", "-1"], "--first-seed must be at least 0, not -1"),
        (["--frames", "100"], "less than one batch of 160 steps"),
        (["--frames", "1.5"], "--frames: '1.5' is not a whole number of frames"),
        (["--frames", "0"], "--frames must be positive, not 0"),
        (["--cores-per-trial", "100000"], "--cores-per-trial 100000 is more than"),
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
    assert re.search(complaint, mistake(capsys, "compare", *SWEEP, "--out", out, *arguments))
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
    assert launch.parse_compare([*SWEEP, "--out", str(tmp_path / "sweep"), "--num-questions", "8"]).auxiliary.num_questions == 8


def test_a_sweep_overwrites_nothing(capsys, tmp_path):
    assert "--out is missing" in mistake(capsys, "compare", *SWEEP)
    (tmp_path / "file").write_text("mine")
    assert "is not empty and not a sweep" in mistake(capsys, "compare", *SWEEP, "--out", tmp_path)
    out = tmp_path / "sweep"
    sweep = make_sweep(out, tasks=("none",))
    assert "holds another sweep (--frames 1000, not 400)" in mistake(capsys, "compare", *SWEEP, "--out", out)
    write_trial(sweep.trials[0], score=None)
    (sweep.trials[0].path / "result.json").write_text("{")
    before = snapshot(tmp_path)
    assert "result.json is damaged" in mistake(capsys, "compare", *SWEEP, "--out", out, "--frames", "1000")
    assert snapshot(tmp_path) == before


def test_a_dry_run_prints_the_estimate_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("studies.compare.estimate.SECONDS", 0.01)
    assert launch.main(["compare", *SWEEP, "--torso", "shallow", "--out", str(tmp_path / "sweep"), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "games 1 x tasks 1 x seeds 2 = 2 trials of 400 frames" in text
    assert re.search(r"catch +│ none +│ +[\d,]+ ", text)
    assert re.search(r"800 frames, about 1 min, about \d+ MB of disk", text)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_counts_varied_settings(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("studies.compare.estimate.SECONDS", 0.01)
    varied = ["--vary", "learning_rate=3e-4,6e-4", "--vary", "torso=shallow,nature", "--vary", "frames=400,800"]
    assert launch.main(["compare", *SWEEP, *varied, "--out", str(tmp_path / "sweep"), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "games 1 x tasks and settings 8 x seeds 2 = 16 trials of 400 or 800 frames" in text
    assert len(re.findall(r"none-torso=\w+ +│", text)) == 2
    assert list(tmp_path.iterdir()) == []


def test_invalid_flags_of_report_are_refused(capsys, tmp_path):
    assert "no directory was named" in mistake(capsys, "report")
    assert "is not a directory" in mistake(capsys, "report", tmp_path / "nowhere")
    assert "holds no trial that can be read" in mistake(capsys, "report", tmp_path)
    assert list(tmp_path.iterdir()) == []
    sweep = make_sweep(tmp_path / "sweep", seeds=1)
    for trial in sweep.trials:
        write_trial(trial, score=1.0)
    assert "has no trial here; there is none, reverse_gvf" in mistake(capsys, "report", sweep.out, "--task", "magic")
    assert "did you mean 'reverse_gvf'?" in mistake(capsys, "report", sweep.out, "--task", "revers_gvf")
    assert not list(sweep.out.glob("report*"))


def test_a_report_prints_its_summary_and_path(capsys, tmp_path):
    sweep = make_sweep(tmp_path / "sweep", seeds=1)
    for trial in sweep.trials:
        write_trial(trial, score=1.0)
    assert launch.main(["report", str(sweep.out)]) == 0
    text = capsys.readouterr().out
    assert "Against none, final score: one seed shows nothing (1 against 1 seeds)." in text
    assert "Against none, area under the learning curve: one seed shows nothing (1 against 1 seeds)." in text
    assert f"page: {sweep.out / 'report.html'}" in text


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


def test_the_text_of_an_evaluation(capsys):
    launch.print_evaluation(Evaluation("pong", "machado", [1.0, 3.0], [5, 5], greedy=True).summary())
    launch.print_evaluation(Evaluation("pong", "impala", [1.0], [5]).summary() | {"protocol": None, "human_normalised": None})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("pong (machado protocol, greedy), 2 games: mean 2.00 +- 1.00, median 2.00, human-normalised 0.6")
    assert second == "pong, 1 game: mean 1.00, median 1.00"


def test_a_broken_pipe_other_than_stdout_is_raised(capfd, monkeypatch):
    def broken(arguments, stop):
        raise BrokenPipeError("of a socket")

    monkeypatch.setitem(launch.COMMANDS, "games", broken)
    with pytest.raises(BrokenPipeError, match="of a socket"):
        launch.main(["games"])


def test_games_are_listed_with_their_scores(capsys):
    assert launch.main(["games", "--json"]) == 0
    rows = {row["game"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) > 100
    assert (rows["pong"]["random"], rows["pong"]["human"]) == (-20.7, 14.6)
    assert rows["catch"]["human"] is None
    assert (rows["catch"]["optimal"], rows["pong"]["optimal"]) == (1.0, None)
    assert rows["collect_objects"]["optimal"] == pytest.approx(GRIDS["collect_objects"]().optimal_score)
    assert launch.main(["games"]) == 0
    assert "breakout" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "frames"),
    [("10_000_000", 10**7), ("1e6", 10**6), ("10M", 10**7), ("500k", 500_000), ("1.5M", 1_500_000), ("0.3m", 300_000)],
)
def test_notations_of_frame_counts(tmp_path, text, frames):
    flags = ["--frames", text, "--log-frames", text]
    run = launch.parse_train([*flags, "--task", "gvf", "--picture-frames", text]).run
    assert (run.frames, run.log_frames, run.picture_frames) == (frames, frames, frames)
    sweep = launch.parse_compare([*SWEEP, "--out", str(tmp_path / "sweep"), *flags])
    assert (sweep.frames, sweep.log_frames) == (frames, frames)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in launch.COMMANDS)])
def test_help_and_version_have_no_slow_imports(arguments):
    code = f"""
import sys
import launch
try:
    code = launch.main({arguments})
except SystemExit as exit:
    code = exit.code
slow = {{"torch", "ray", "gymnasium", "ale_py", "numpy", "matplotlib"}} & set(sys.modules)
print(*slow, file=sys.stderr)
sys.exit(code or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "\n")
    assert ("hindcast 0.1.0" if arguments == ["--version"] else "usage: launch.py") in done.stdout


def test_the_version_and_its_commit(capsys, monkeypatch, tmp_path):
    assert launch.main(["--version"]) == 0
    commit = provenance()["commit"]
    assert capsys.readouterr().out == f"hindcast {metadata.version('hindcast')} (commit {commit})\n"
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", commit)
    monkeypatch.setattr("configs.installation.in_checkout", lambda: False)
    assert launch.main(["--version"]) == 0
    assert capsys.readouterr().out == f"hindcast {metadata.version('hindcast')}\n"


def test_the_examples_of_the_help_can_be_parsed(capsys):
    parsers = {"train": launch.parse_train, "compare": launch.parse_compare}
    assert launch.main(["--help"]) == 0
    text = capsys.readouterr().out
    for example in launch.EXAMPLES:
        assert launch.launch_command(*example.split()) in text
        command, *flags = example.split()
        parsers.get(command, lambda flags, name=command: launch.parse(launch.EvaluateConfig, name, flags))(flags)


def test_every_flag_of_training_is_explained(capsys):
    with pytest.raises(SystemExit):
        launch.main(["train", "--help"])
    text = capsys.readouterr().out
    for flag in ("--game", "--task", "--frames", "--run-dir", "--resume", "--ray-address", "--preset", "--protocol"):
        assert flag in text
    assert re.search(r"--frames FRAMES .*\(default:\W+10_000_000\)", text, flags=re.DOTALL)
