import pytest

from configs.errors import ConfigError
from configs.train import PRESETS, TrainConfig


def test_a_config_goes_to_json_values_and_back():
    for config in PRESETS.values():
        assert TrainConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    "change",
    [
        {"task": "rm -rf"},
        {"agent": {"torso": "../../etc"}},
        {"agent": {"core_size": "8"}},
        {"agent": {"core_size": True}},
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
        make_config(frames=10**12, **{name: value})
    with pytest.raises(ConfigError, match=" times ".join("--" + name.replace("_", "-") for name in product)):
        make_config(frames=10**12, **product)


def test_only_what_does_not_alter_the_learning_may_change_on_resume(make_config):
    started = make_config()
    make_config(frames=400, num_actors=3, keep_checkpoints=9).check_resumes(started)
    for change in ({"seed": 2}, {"torso": "deep"}, {"game": "pong"}, {"batch_size": 8}, {"learning_rate": 1.0}):
        with pytest.raises(ConfigError, match=next(iter(change)).replace("_", "-")):
            make_config(**change).check_resumes(started)
