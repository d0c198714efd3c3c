"""Ray actors and learners import plugged-in code from where this process does; a task that fails in one of them is named."""

import os
import sys
from pathlib import Path

import pytest

from actors.cluster import import_path
from configs.errors import PluginError
from training.loop import train
from training.storage.run_directory import RunDirectory


def test_directories_that_are_not_of_python_itself_are_passed_on(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", f"{sys.prefix}/lib/site-packages", f"{sys.base_prefix}/lib/python"])
    assert import_path() == os.pathsep.join([str(tmp_path), str(Path.cwd())])


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{"pool": "ray", "num_actors": 1}, {"learners": 2}], ids=["actors", "learners"])
def test_a_module_on_the_path_of_this_process_reaches_ray(make_config, never, plugged, layout):
    config = make_config(task=f"{plugged}:NextReward", torso=f"{plugged}:net", **layout)
    assert train(config, never)["frames"] >= 200
    assert "PYTHONPATH" not in os.environ or plugged not in os.environ["PYTHONPATH"]


@pytest.mark.slow
def test_a_task_that_fails_on_any_learner_ends_the_run_with_its_name(make_config, never, plugged):
    config = make_config(task=f"{plugged}:NextReward", learners=2, fails=True, fails_after=3)
    with pytest.raises(PluginError, match=r"NextReward\.loss failed: ArithmeticError: of the user's own") as error:
        train(config, never)
    assert 'raise ArithmeticError("of the user\'s own")' in error.value.trace
    assert RunDirectory(config.run_path).checkpoints(keep=1).newest().tensors["learner.counters"].tolist() == [0, 0]
