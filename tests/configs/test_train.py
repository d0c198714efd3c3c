import pytest

from agents.tasks import TASKS
from configs.errors import ConfigError
from configs.settings import facts
from configs.tasks import DiscoveryConfig, MetaConfig, QuestionConfig
from configs.train import (
    PRESETS,
    TrainConfig,
    learning_settings,
    without_execution,
)
from envs.registry import game_spec
from learners.learner import Learner
from learners.meta_learner import MetaLearner


def test_a_config_goes_to_json_values_and_back():
    for config in PRESETS.values():
        assert TrainConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    "change",
    [
        {"task": "rm -rf"},
        {"agent": {"torso": "../../etc"}},
        {"agent": {"lstm_size": "8"}},
        {"agent": {"lstm_size": True}},
        {"agent": []},
        {"learner": {"learning_rate": float("nan")}},
        {"learner": {"batch_size": -1}},
        {"surprise": 1},
        {"run": {"frames": 10**9, "surprise": 1}},
    ],
)
def test_values_that_are_not_a_configs_are_refused(change):
    with pytest.raises(ConfigError):
        TrainConfig.from_dict(TrainConfig().to_dict() | change)


@pytest.mark.parametrize(
    "product",
    [
        {"unroll": 2**16, "batch_size": 2**16},
        {"unroll": 2**16, "envs_per_actor": 2**12},
        {"unroll": 2**10, "batch_size": 2**10, "meta_interval": 2**10},
    ],
)
def test_numbers_that_are_too_much_together_are_refused(make_config, product):
    for name, value in product.items():
        make_config(task="gvf", frames=10**12, **{name: value})
    with pytest.raises(ConfigError, match=" times ".join("--" + name.replace("_", "-") for name in product)):
        make_config(task="gvf", frames=10**12, **product)


def test_only_what_does_not_alter_the_learning_may_change_on_resume(make_config):
    started = make_config()
    make_config(frames=400, num_actors=3, keep_checkpoints=9).check_resumes(started)
    for change in ({"seed": 2}, {"torso": "deep"}, {"game": "pong"}, {"batch_size": 8}, {"learning_rate": 1.0}):
        with pytest.raises(ConfigError, match=next(iter(change)).replace("_", "-")):
            make_config(**change).check_resumes(started)
    make_config(pool="ray", envs_per_actor=9).check_resumes(make_config(pool="ray"))
    with pytest.raises(ConfigError, match="a serial run that was started with --envs-per-actor 0 cannot resume with 9"):
        make_config(envs_per_actor=9).check_resumes(started)


class Watched:
    """Settings that remember which of them were read."""

    def __init__(self, settings):
        self.settings, self.read = settings, set()

    def __getattr__(self, name):
        derived = getattr(type(self.settings), name, None)
        if isinstance(derived, property):
            return derived.fget(self)
        if callable(derived):
            return derived.__get__(self)
        self.read.add(name)
        return getattr(self.settings, name)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_reads_the_settings_that_it_has(make_config, monkeypatch, task):
    config = make_config(task=task)
    watched = Watched(config.auxiliary)
    if isinstance(config.auxiliary, MetaConfig):
        monkeypatch.setattr("learners.learner.MetaLearner", lambda _, *rest: MetaLearner(watched, *rest))
    object.__setattr__(config, "auxiliary", watched)
    Learner(config, game_spec("catch", "impala"))
    assert watched.read == facts(type(watched.settings)).keys()


def test_what_does_not_alter_the_learning_is_a_setting_and_may_change_on_resume(make_config):
    config = make_config()
    changeable = {name for name, setting in facts(TrainConfig).items() if setting.may_change_on_resume}
    assert {"device", "eval_episodes", "num_actors", "run_dir"} < changeable
    assert changeable & set(learning_settings(config)) == {"frames"}
    make_config(eval_episodes=3, compile=True).check_resumes(config)
    make_config(task="gvf", meta_memory_gb=1.0, meta_cosine=True).check_resumes(make_config(task="gvf"))


def test_a_config_has_the_settings_of_its_task(make_config):
    with pytest.raises(ConfigError, match="task none has settings of type NoConfig, not DiscoveryConfig"):
        TrainConfig(auxiliary=DiscoveryConfig())
    with pytest.raises(ConfigError, match="unknown settings: 'answer_weight'"):
        TrainConfig.from_dict(TrainConfig().to_dict() | {"auxiliary": {"answer_weight": 0.3}})
    config = make_config(task="gvf", answer_weight=0.3)
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert config.with_task("random_gvf", num_questions=4).auxiliary == QuestionConfig(num_questions=4)


def test_only_settings_of_the_task_alter_its_learning(make_config):
    plain, asking = (learning_settings(make_config(task=task)) for task in ("none", "reverse_gvf"))
    assert set(asking) - set(plain) == {
        "num_questions", "question_input", "question_torso", "normalise_cumulants", "scale_cumulants", "answer_lambda",
        "answer_weight", "meta_interval", "meta_period", "meta_gradient", "meta_optimiser", "meta_learning_rate",
        "meta_clip_norm",
    }  # fmt: skip
    assert {"frames", "learning_rate", "torso", "pool", "stop_main_gradient"} <= set(plain)
    assert not {"game", "protocol", "seed", "task", "preset"} & set(plain)


def test_a_setting_alters_the_learning_of_the_optimiser_that_reads_it(make_config):
    rmsprop, adam = (set(learning_settings(make_config(optimiser=name))) for name in ("rmsprop", "adam"))
    assert rmsprop - adam == {"rmsprop_decay", "rmsprop_eps", "rmsprop_initial_moment"}
    assert adam - rmsprop == {"adam_beta1", "adam_beta2", "adam_eps"}


def test_a_config_from_before_there_was_a_choice_has_rmsprop(make_config):
    values = make_config().to_dict()
    for name in ("optimiser", "adam_beta1", "adam_beta2", "adam_eps"):
        del values["learner"][name]
    assert TrainConfig.from_dict(values) == make_config()
    with pytest.raises(ConfigError, match="started with --optimiser rmsprop; it cannot resume with adam"):
        make_config(optimiser="adam").check_resumes(TrainConfig.from_dict(values))


def test_tables_without_settings_of_execution():
    assert without_execution({"frames": 1, "device": "cpu", "learner": {"compile": True, "unroll": 5}}) == {
        "frames": 1,
        "learner": {"unroll": 5},
    }
