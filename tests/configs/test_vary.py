"""Settings as a dimension of a sweep: what is varied for whom, and what is refused."""

import pytest

import launch
from configs.compare import COMPARE_PRESETS, CompareConfig
from configs.errors import ConfigError
from configs.settings import facts
from configs.train import TrainConfig
from configs.vary import VARIABLE, Variation, parse_variation, settings_name, variants, with_settings

TASKS = ("none", "reward_prediction", "random_gvf", "reverse_gvf")


def test_every_combination_of_what_a_task_reads():
    texts = ("learning_rate=3e-4,6e-4", "meta_learning_rate=1e-4,1e-3", "reverse_gvf.answer_weight=0.03,0.1,0.3")
    varied = [parse_variation(text, TASKS) for text in texts]
    rates = [{"learning_rate": 3e-4}, {"learning_rate": 6e-4}]
    for task in ("none", "reward_prediction", "random_gvf"):
        assert variants(varied, task) == rates
    combined = variants(varied, "reverse_gvf")
    assert len(combined) == 2 * 2 * 3
    assert combined[1] == {"learning_rate": 3e-4, "meta_learning_rate": 1e-4, "answer_weight": 0.1}
    assert variants([], "none") == [{}]


def test_settings_of_an_optimiser_vary_its_trials_alone():
    varied = [parse_variation(text, TASKS) for text in ("optimiser=rmsprop,adam", "adam_eps=1e-4,1e-8", "unroll=5,10")]
    assert variants(varied[1:2], "none") == [{}]
    assert variants(varied[1:2], "none", "adam") == [{"adam_eps": 1e-4}, {"adam_eps": 1e-8}]
    assert variants(varied[:2], "none") == [
        {"optimiser": "rmsprop"},
        {"optimiser": "adam", "adam_eps": 1e-4},
        {"optimiser": "adam", "adam_eps": 1e-8},
    ]
    assert len(variants(varied, "none")) == 2 * 3


def test_values_have_the_type_of_their_setting():
    for text, values in {
        "frames=10_000,20_000": (10_000, 20_000),
        "torso=shallow,deep": ("shallow", "deep"),
        "stop-main-gradient=true,False": (True, False),
        "clip_norm=40, 1e1": (40.0, 10.0),
    }.items():
        found = parse_variation(text, TASKS)
        assert found.values == values
        assert list(map(type, found.values)) == list(map(type, values))
    assert parse_variation("reverse_gvf.num-questions=4,8", TASKS) == Variation("num_questions", (4, 8), "reverse_gvf")


def test_a_variation_is_read_back_from_its_text():
    for text in ("learning_rate=3e-4,6e-4", "reverse_gvf.answer_weight=0.03,0.1", "frames=1_000,20_000", "compile=true"):
        if text.startswith("compile"):
            with pytest.raises(ConfigError, match="compile does not alter what is learnt"):
                parse_variation(text, TASKS)
        else:
            assert parse_variation(text, TASKS).text == text


def test_a_setting_is_changed_where_it_belongs():
    config = with_settings(TrainConfig(task="gvf"), {"torso": "deep", "unroll": 9, "answer_weight": 0.3, "frames": 1000})
    assert (config.agent.torso, config.learner.unroll, config.auxiliary.answer_weight) == ("deep", 9, 0.3)
    assert config.run.frames == 1000
    assert settings_name({"learning_rate": 3e-4, "torso": "deep"}) == "learning_rate=3e-4-torso=deep"
    assert all(facts(TrainConfig)[name].role == "learning" for name in VARIABLE)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("learning_rat=1,2", "unknown setting 'learning_rat'; did you mean learning_rate?"),
        ("learning_rate", "a setting and its values are missing"),
        ("learning_rate=", "a setting and its values are missing"),
        ("learning_rate=1,,2", "'' is not a number"),
        ("reverse_gvf.question_input=stat", "'stat' is none of state, future"),
        ("reverse_gvf.meta_memory_gb=1,2", "meta_memory_gb does not alter what is learnt"),
        ("unroll=5.5", "'5.5' is not a whole number"),
        ("torso=shalow", "unknown torso 'shalow'; did you mean shallow?"),
        ("stop_main_gradient=maybe", "'maybe' is neither true nor false"),
        ("learning_rate=1e-3,0.001", "a value is named twice"),
        ("revers_gvf.answer_weight=1", "'revers_gvf' is no task of --tasks; did you mean reverse_gvf?"),
        ("pixel_control_weight=1,2", "pixel_control_weight makes no difference to none, reverse_gvf"),
        ("none.answer_weight=1,2", "answer_weight makes no difference to none"),
        ("learning_rate=0.1,-1", "--learning-rate must be positive, not -1"),
        ("frames=1000,10", "--frames 10 is less than one batch"),
        ("seed=1,2", "unknown setting 'seed'"),
        ("adam_eps=1e-4,1e-8", "--adam-eps has no effect with --optimiser rmsprop; it is for adam"),
        ("optimiser=adm", "'adm' is none of rmsprop, adam"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(capsys, tmp_path, text, complaint):
    flags = ["--games", "catch", "--tasks", "none", "reverse_gvf", "--frames", "1000", "--out", str(tmp_path / "g")]
    assert launch.main(["compare", *flags, "--vary", text]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert list(tmp_path.iterdir()) == []


def test_a_setting_is_given_once_for_each_task():
    with pytest.raises(ConfigError, match="gives answer_weight twice for gvf"):
        CompareConfig(tasks=("none", "gvf"), vary=("answer_weight=1,2", "gvf.answer_weight=3,4"))


def test_the_flag_may_be_given_again():
    arguments = ["--vary", "learning_rate=3e-4,6e-4", "--tasks", "none", "--vary", "unroll=5,10"]
    config = launch.parse(CompareConfig, "compare", arguments, COMPARE_PRESETS["default"])
    assert [variation.setting for variation in config.variations] == ["learning_rate", "unroll"]
    assert len(config.variants("none")) == 4
