"""The command line of `train` and `evaluate`: flags, directories, resuming."""

import json
import os
import re
from pathlib import Path

import pytest

import launch
from learners.learner import Learner
from tests.command_line.refusal import NO_GPU, refusal, snapshot
from tests.helpers.running import TINY, interrupted

pytestmark = pytest.mark.usefixtures("signals")


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--game", "brekout"], "did you mean breakout"),
        (["--game", "gym:CarRacing-v9"], "did you mean gym:CarRacing-v3"),
        (["--game", "gym:CartPole-v1"], "only uint8 images"),
        (["--game", "gym:Pendulum-v1"], "only Discrete"),
        (["--nonsense", "1"], r"--nonsense, 1 \("),
        (["--task", "gvf", "--num-question", "3"], r"--num-question, 3; did you mean --num-questions\? \("),
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
        (["--discount", "1"], "--discount must be below 1, not 1"),
        (["--vtrace-lambda", "2"], "--vtrace-lambda must be at most 1, not 2"),
        (["--num-actors", "-1"], "--num-actors must be at least 0, not -1"),
        (["--torso", "huge"], "unknown torso 'huge'; there is shallow, nature, deep, or PACKAGE.MODULE:NAME"),
        (["--task", "magic"], "unknown task 'magic'; there is none, .*, or PACKAGE.MODULE:NAME for one of your own"),
        (["--task", "revers_gvf"], "unknown task 'revers_gvf'; did you mean reverse_gvf"),
        (["--preset", "mine"], "invalid choice 'mine'"),
        (["--task", "gvf", "--num-questions", "0"], "--num-questions must be positive, not 0"),
        (["--task", "gvf", "--meta-interval", "8", "--meta-period", "7"], "--meta-period 7 is less than --meta-interval 8"),
        (["--task", "gvf", "--meta-interval", "0"], "--meta-interval must be positive, not 0"),
        (["--task", "gvf", "--answer-lambda", "1.5"], "--answer-lambda must be at most 1, not 1.5"),
        (["--task", "gvf", "--answer-lambda", "-0.1"], "--answer-lambda must be at least 0, not -0.1"),
        (["--task", "reverse_gvf", "--compile"], "--compile has no second derivatives"),
        (["--task", "gvf", "--precision", "bf16"], "--precision bf16 is too coarse for the meta-gradient of --task gvf"),
        (["--precision", "float16"], "invalid choice 'float16'"),
        NO_GPU,
        (["--resume"], "holds no run"),
        (["--pool", "ray", "--ray-address", "127.0.0.1:1"], "cannot join Ray at 127.0.0.1:1"),
    ],
)
def test_invalid_flags_of_train_are_refused(capsys, run_dir, arguments, complaint):
    assert re.search(complaint, refusal(capsys, "train", "--run-dir", run_dir, *arguments))
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--num-questions", "32"], "--num-questions has no effect with task none; it is for gvf, reverse_gvf, random_gvf"),
        (["--no-scale-cumulants"], "--scale-cumulants has no effect with task none; it is for gvf"),
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
        (["--adam-eps", "1e-8"], "--adam-eps has no effect with --optimiser rmsprop; it is for adam"),
        (["--optimiser", "adam", "--rmsprop-decay", "0.9"], "--rmsprop-decay has no effect with --optimiser adam; it is for"),
        (["--learner-threads", "2"], "--learner-threads has no effect with --pool serial"),
        (["--ray-address", "127.0.0.1:1"], "--ray-address has no effect with --pool serial"),
        (["--no-pin-actors"], "--pin-actors has no effect with --pool serial"),
        (["--preset", "paper", "--num-actors", "3"], "--num-actors has no effect with --pool serial"),
    ],
)
def test_settings_without_effect_are_refused(capsys, run_dir, arguments, complaint):
    assert complaint in refusal(capsys, "train", "--run-dir", run_dir, *TINY, *arguments)
    assert not run_dir.exists()


def test_settings_with_effect_and_explicit_defaults_are_accepted():
    for arguments in (
        ["--in-flight", "2", "--protocol", "impala"],
        ["--task", "random_gvf", "--num-questions", "8", "--stop-main-gradient"],
        ["--task", "gvf", "--meta-interval", "5", "--picture-frames", "100"],
        ["--pool", "ray", "--num-actors", "3", "--learner-threads", "2"],
        ["--game", "pong", "--protocol", "machado"],
        ["--preset", "paper"],
        ["--preset", "paper", "--optimiser", "adam", "--adam-beta1", "0.8"],
    ):
        launch.parse_train([*TINY, *arguments])


def test_a_run_with_recorded_settings_without_effect_resumes(capsys, run_dir):
    assert launch.main(["train", "--run-dir", str(run_dir), *TINY, "--eval-episodes", "0"]) == 0
    record = json.loads((run_dir / "config.json").read_text())
    record["config"]["run"]["picture_frames"] = 8
    record["config"]["actors"]["num_actors"] = 3
    (run_dir / "config.json").write_text(json.dumps(record))
    resume = ["train", "--run-dir", str(run_dir), "--resume", "--frames", "600"]
    capsys.readouterr()
    assert "--num-actors has no effect with --pool serial" in refusal(capsys, *resume, "--num-actors", "2")
    assert launch.main(resume) == 0
    assert json.loads((run_dir / "result.json").read_text())["frames"] == 600


def test_ray_is_announced_before_it_is_started(capsys, run_dir):
    flags = ["--pool", "ray", "--num-actors", "1", "--ray-address", "127.0.0.1:1", "--run-dir", str(run_dir)]
    assert launch.main(["train", *TINY, *flags]) == 2
    assert capsys.readouterr().err.startswith("joining Ray at 127.0.0.1:1\nlaunch.py: cannot join Ray")


def test_a_directory_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    message = refusal(capsys, "train", "--run-dir", tmp_path / "file" / "run", *TINY)
    assert f"{tmp_path / 'file'} is a file, not a directory" in message


def test_a_directory_with_other_files_is_refused(capsys, tmp_path):
    for name in ("thesis.tex", ".thesis.tmp"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / name).write_text("irreplaceable")
        assert "not a run" in refusal(capsys, "train", "--run-dir", directory, *TINY)
        assert [path.name for path in directory.iterdir()] == [name]


def test_a_run_is_trained_resumed_evaluated_and_damaged(capsys, run_dir):
    assert launch.main(["train", "--run-dir", str(run_dir), *TINY, "--eval-episodes", "3"]) == 0
    text = capsys.readouterr().out
    assert "\ncatch, 3 games: mean" in text
    assert "best possible 1.000" in text
    before = snapshot(run_dir)

    assert "already holds a run" in refusal(capsys, "train", "--run-dir", run_dir, *TINY)
    assert "--torso shallow; it cannot resume with deep" in refusal(
        capsys, "train", "--run-dir", run_dir, "--resume", "--torso", "deep"
    )
    assert "--game catch; it cannot resume with pong" in refusal(
        capsys, "train", "--run-dir", run_dir, "--resume", "--game", "pong"
    )
    assert "--task none; it cannot resume with gvf" in refusal(
        capsys, "train", "--run-dir", run_dir, "--resume", "--task", "gvf"
    )
    assert "--frames 19 is less than one batch of 20 steps" in refusal(
        capsys, "train", "--run-dir", run_dir, "--resume", "--frames", "19"
    )
    assert "--frames 399 is less than the 400 frames that the run has done" in refusal(
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
    assert "damaged" in refusal(capsys, "train", "--run-dir", run_dir, "--resume")
    assert "damaged" in refusal(capsys, "evaluate", "--run-dir", run_dir)
    (run_dir / "config.json").write_text('{"config": {"task": "rm -rf"}}')
    assert "config.json is damaged" in refusal(capsys, "train", "--run-dir", run_dir, "--resume")
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
    result = run_dir / "result.json"
    assert json.loads(result.read_text())["frames"] == 1600
    for frames in ([], ["--frames", "1600"]):
        assert launch.main(["train", "--run-dir", str(run_dir), "--resume", *frames]) == 0
        assert "learning rate" not in capsys.readouterr().err


def test_the_result_of_a_run_that_is_extended_and_interrupted_is_gone(capsys, monkeypatch, run_dir):
    assert launch.main(["train", "--run-dir", str(run_dir), *TINY, "--eval-episodes", "0"]) == 0
    assert (run_dir / "result.json").exists()
    interrupted(monkeypatch, "train", "--run-dir", run_dir, "--resume", "--frames", "1600", at=500)
    assert not (run_dir / "result.json").exists()
    for flag, name, recorded in (("game", "pong", "catch"), ("torso", "deep", "shallow")):
        capsys.readouterr()
        message = refusal(capsys, "evaluate", "--run-dir", run_dir, f"--{flag}", name)
        assert f"the run's {flag} is {recorded}; --{flag} {name} cannot change it" in message


def test_a_run_whose_last_batch_overshot_resumes(capsys, run_dir):
    assert launch.main(["train", "--run-dir", str(run_dir), *TINY, "--frames", "390", "--eval-episodes", "0"]) == 0
    resume = ["train", "--run-dir", str(run_dir), "--resume"]
    for frames in ([], ["--frames", "390"], ["--frames", "400"]):
        assert launch.main([*resume, *frames]) == 0
    capsys.readouterr()
    assert "--frames 391 is less than the 400 frames" in refusal(capsys, *resume, "--frames", "391")


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
    assert "no checkpoint of frame 390; there are those of 400, 380, 360" in refusal(capsys, *evaluate, "--checkpoint", "390")
    assert "--checkpoint must be newest, best or a frame, not 'last'" in refusal(capsys, *evaluate, "--checkpoint", "last")
    assert snapshot(run_dir) == before


def test_every_flag_of_training_is_explained(capsys):
    with pytest.raises(SystemExit):
        launch.main(["train", "--help"])
    text = capsys.readouterr().out
    for flag in ("--game", "--task", "--frames", "--run-dir", "--resume", "--ray-address", "--preset", "--protocol"):
        assert flag in text
    assert re.search(r"--frames FRAMES .*\(default:\W+10_000_000\)", text, flags=re.DOTALL)
