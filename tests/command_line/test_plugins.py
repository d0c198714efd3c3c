"""Tasks and torsos from modules of the user's own: flags, mistakes, resuming, and who may have a module imported."""

import json
import shutil
import subprocess
import sys

import pytest

import launch
from configs.errors import ConfigError
from configs.train import TrainConfig
from envs.registry import game_spec
from learners.learner import Learner
from tests.command_line.refusal import refusal, snapshot
from tests.helpers.running import ROOT, TINY, interrupted

pytestmark = pytest.mark.usefixtures("signals")
SHORT = [*TINY, "--frames", "100", "--eval-episodes", "0"]


def config_of(run):
    return json.loads((run / "config.json").read_text())["config"]


def edit(run, **changes):
    record = json.loads((run / "config.json").read_text())
    record["config"] |= changes
    (run / "config.json").write_text(json.dumps(record))


def test_the_flags_of_a_task_are_shown_validated_saved_and_restored(capsys, plugged, tmp_path, monkeypatch):
    task, run = f"{plugged}:NextReward", tmp_path / "run"
    with pytest.raises(SystemExit):
        launch.main(["train", "--task", task, "--help"])
    text = capsys.readouterr().out
    assert "--next-reward-weight FLOAT" in text
    assert "Weight of the squared error. (default: 0.1)" in " ".join(text.replace("│", " ").split())
    assert "--answer-weight" not in text
    train = ["train", "--task", task, "--run-dir", run, *SHORT, "--torso", f"{plugged}:net"]
    assert "--next-reward-decay must be below 1, not 2" in refusal(capsys, *train, "--next-reward-decay", "2")
    assert "--answer-weight has no effect with task plugged_" in refusal(capsys, *train, "--answer-weight", "1")
    assert "it is for gvf, reverse_gvf, random_gvf" in refusal(capsys, *train, "--answer-weight", "1")
    assert not run.exists()
    interrupted(monkeypatch, *map(str, train), "--next-reward-weight", "0.7")
    assert config_of(run)["auxiliary"]["next_reward_weight"] == 0.7
    capsys.readouterr()
    resume = ["train", "--resume", "--run-dir", run]
    named = [*resume, "--task", task, "--torso", f"{plugged}:net"]
    assert "--next-reward-weight 0.7; it cannot resume with 0.8" in refusal(capsys, *named, "--next-reward-weight", "0.8")
    assert f"add --task {task}" in refusal(capsys, *resume, "--torso", f"{plugged}:net", "--task", "none")
    assert launch.main([*map(str, named), "--fails-after", "5"]) == 0  # Of execution.
    assert config_of(run)["auxiliary"] == {
        "next_reward_weight": 0.7, "next_reward_decay": 0.5, "fails": False, "fails_after": 5
    }  # fmt: skip
    assert json.loads((run / "result.json").read_text())["frames"] == 100


def test_the_help_of_built_in_tasks_imports_neither_torch_nor_ray():
    """It would take seconds."""
    program = "import sys, launch\ntry: launch.main(sys.argv[1:])\nfinally: print(sys.modules.keys() & {'torch', 'ray'})"
    for arguments in (["train", "--task", "gvf"], ["compare", "--tasks", "none", "gvf", "pixel_control"]):
        command = [sys.executable, "-c", program, *arguments, "--help"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert "--answer-weight" in done.stdout
        assert done.stdout.endswith("set()\n")


def test_only_the_command_line_has_modules_imported(capsys, plugged, tmp_path):
    """A run that was made with a foreign task and torso is read without them; to resume or evaluate is to name them."""
    mark, run = tmp_path / "outside" / f"{plugged}.imported", tmp_path / "run"
    task, torso = f"{plugged}:NextReward", f"{plugged}:net"
    assert launch.main(["train", *SHORT, "--task", task, "--torso", torso, "--run-dir", str(run)]) == 0
    assert mark.exists()
    mark.unlink()
    del sys.modules[plugged]
    before = snapshot(run)
    capsys.readouterr()
    resume, evaluate = ["train", "--resume", "--run-dir", run], ["evaluate", "--run-dir", run, "--episodes", "1"]
    line = f"this run's torso would run the code of '{plugged}'; if you trust it, add --torso {torso}"
    assert line in refusal(capsys, *resume)
    assert line in refusal(capsys, *resume, "--task", "none")
    assert line in refusal(capsys, *evaluate)
    assert line in refusal(capsys, *evaluate, "--torso", "other.module:net")
    assert snapshot(run) == before
    assert launch.main(["report", str(run)]) == 0
    capsys.readouterr()
    edit(run, agent=config_of(run)["agent"] | {"torso": "shallow"})
    line = f"this run's task would run the code of '{plugged}'; if you trust it, add --task {task}"
    assert line in refusal(capsys, *resume)
    assert not mark.exists()
    assert plugged not in sys.modules


def test_evaluate_needs_the_torso_and_not_the_task(capsys, plugged, tmp_path):
    run = tmp_path / "run"
    assert launch.main(["train", "--task", f"{plugged}:NextReward", "--run-dir", str(run), *SHORT]) == 0
    del sys.modules[plugged]
    shutil.rmtree(tmp_path / "outside")
    assert launch.main(["evaluate", "--run-dir", str(run), "--episodes", "1"]) == 0
    assert launch.main(["report", str(run)]) == 0
    assert plugged not in sys.modules
    capsys.readouterr()
    assert "cannot be imported" in refusal(
        capsys, "train", "--resume", "--run-dir", run, "--task", f"{plugged}:NextReward", "--frames", "200"
    )


def test_a_torso_is_evaluated_when_it_is_named(plugged, tmp_path):
    run, torso = tmp_path / "run", f"{plugged}:net"
    assert launch.main(["train", "--run-dir", str(run), *SHORT, "--torso", torso]) == 0
    assert launch.main(["evaluate", "--run-dir", str(run), "--episodes", "1", "--torso", torso]) == 0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--task", "no_such_module:Task"], "the module 'no_such_module' of no_such_module:Task cannot be imported"),
        (["--task", "MODULE:NextRewart"], "has no task 'NextRewart'; did you mean NextReward?"),
        (["--task", "MODULE:Net"], "MODULE:Net is not a task: it must be a subclass of agents.tasks.AuxiliaryTask"),
        (["--task", "MODULE:number"], "MODULE:number is not a task"),
        (["--task", "MODULE:Colliding"], "MODULE:Colliding has a setting --unroll, which is a flag of train already"),
        (["--task", "MODULE:Thawed"], "the Config of MODULE:Thawed must be a frozen dataclass"),
        (["--task", "MODULE:Nested"], "the field 'sizes' of MODULE:Nested's Config must be a bool, int, float, str or a Lit"),
        (["--task", "MODULE:Forgetful"], "its Config must inherit from configs.tasks.MetaConfig"),
        (["--task", "MODULE:Asking", "--compile"], "--compile has no second derivatives"),
        (["--task", "MODULE:Asking", "--torso", "MODULE:once"], "has a wrong second derivative"),
        (["--task", "MODULE:Asking", "--torso", "MODULE:detached"], "has a wrong second derivative"),
        (["--task", "gvf", "--torso", "MODULE:once"], "task gvf needs second derivatives for its meta-gradient, and torso"),
        (["--torso", "MODULE:nett"], "has no torso 'nett'; did you mean net?"),
        (["--torso", "MODULE:number"], "MODULE:number is not a torso"),
        (["--torso", "MODULE:function"], "it must return a torch module with an integer `num_features`"),
        (["--torso", "MODULE:narrow"], "maps [2, 1, 40, 40] to [2, 24], not [2, 23]"),
        (["--torso", "MODULE"], "unknown torso 'MODULE'"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(capsys, plugged, tmp_path, flags, complaint):
    flags = [flag.replace("MODULE", plugged) for flag in flags]
    assert complaint.replace("MODULE", plugged) in refusal(capsys, "train", *SHORT, *flags, "--run-dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("torso", ["once", "detached", "net"])
def test_a_task_without_meta_gradient_needs_no_second_derivatives(plugged, tmp_path, torso):
    flags = ["--task", "random_gvf", "--torso", f"{plugged}:{torso}"]
    assert launch.main(["train", *SHORT, *flags, "--run-dir", str(tmp_path / "run")]) == 0


def test_the_questions_of_a_foreign_task_are_meta_learned(plugged, tmp_path):
    flags = ["--task", f"{plugged}:Asking", "--torso", f"{plugged}:net", "--meta-interval", "2", "--log-frames", "20"]
    assert launch.main(["train", *SHORT, *flags, "--run-dir", str(tmp_path / "run")]) == 0
    assert '"meta/gradient_norm"' in (tmp_path / "run/metrics.jsonl").read_text()


def test_a_task_that_fails_stops_the_run_with_its_name_a_checkpoint_and_its_traceback(capsys, plugged, tmp_path):
    run, task = tmp_path / "run", f"{plugged}:NextReward"
    failing = ["--fails", "--fails-after", "3"]
    assert launch.main(["train", "--task", task, "--run-dir", str(run), *SHORT, *failing]) == 1
    text = capsys.readouterr().err
    assert 'raise ArithmeticError("of the user\'s own")' in text
    assert f"launch.py: {task}.loss failed: ArithmeticError: of the user's own; frame 60 is saved, and --resume" in text
    assert list((run / "checkpoints").glob("frame_000000000060*"))
    assert not (run / "result.json").exists()
    assert launch.main(["train", "--resume", "--task", task, "--run-dir", str(run), "--fails-after", "100"]) == 0
    assert json.loads((run / "result.json").read_text())["frames"] == 100


def test_a_torso_that_fails_shows_its_traceback(capsys, plugged, tmp_path):
    assert launch.main(["train", *SHORT, "--torso", f"{plugged}:broken", "--run-dir", str(tmp_path / "run")]) == 1
    text = capsys.readouterr().err
    assert f'launch.py: torso {plugged}:broken failed: KeyError: "of the user\'s own"' in text
    assert 'raise KeyError("of the user\'s own")' in text
    assert not (tmp_path / "run").exists()


def test_sweeps_have_foreign_tasks_with_settings_of_their_own(capsys, plugged, tmp_path):
    task = f"{plugged}:NextReward"
    sweep = ["--games", "catch", "--tasks", "none", "gvf", task, "--frames", "400", "--out", str(tmp_path / "sweep")]
    flags = ["--next-reward-weight", "0.3", "--num-questions", "4", "--vary", f"{task}.next_reward_decay=0.1,0.9"]
    config = launch.parse_compare([*sweep, *flags])
    first, second = (config.trial("catch", task, 1, settings).auxiliary for settings in config.variants(task))
    assert (first.next_reward_decay, second.next_reward_decay) == (0.1, 0.9)
    assert first.next_reward_weight == second.next_reward_weight == 0.3
    assert config.trial("catch", "gvf", 1).auxiliary.num_questions == 4
    refused = ["compare", *sweep, "--vary"]
    assert "'next_reward_weigh'; did you mean next_reward_weight?" in refusal(capsys, *refused, "next_reward_weigh=1,2")
    assert "fails_after does not alter what is learnt" in refusal(capsys, *refused, "fails_after=1,2")
    assert "has a setting --unroll, which is a flag of" in refusal(capsys, *refused[:-1], "--tasks", f"{plugged}:Colliding")


def test_a_config_from_a_file_trains_no_foreign_task(plugged, tmp_path, make_config):
    config = make_config(task=f"{plugged}:NextReward")
    (tmp_path / "outside" / f"{plugged}.imported").unlink()
    del sys.modules[plugged]
    recorded = TrainConfig.from_dict(config.to_dict())
    with pytest.raises(ConfigError, match="was named by a file only"):
        Learner(recorded, game_spec("catch", "impala"))
    assert plugged not in sys.modules
    assert Learner(recorded.with_trusted_task(), game_spec("catch", "impala")).task.weight == 0.1


@pytest.mark.parametrize(
    "settings", [[], {"a b": 1}, {"x": [1]}, {"x": {"y": 1}}, {"x": None}, {"x": 10**30}, {"learning_rate": 1.0}]
)
def test_recorded_settings_of_foreign_tasks_are_plain(settings):
    values = TrainConfig().to_dict() | {"task": "somewhere:Task"}
    assert TrainConfig.from_dict(values | {"auxiliary": {"x": 1, "y": "z"}}).auxiliary == {"x": 1, "y": "z"}
    with pytest.raises(ValueError, match=r"auxiliary|--learning-rate"):
        TrainConfig.from_dict(values | {"auxiliary": settings})
