"""Which trials a report pools: never those of different protocols or settings."""

from dataclasses import replace

import matplotlib
import pytest

from configs.settings import setting_text
from configs.train import LearnerConfig, RunConfig
from studies.report.agents import AgentVariant as Variant
from studies.report.agents import sort_agents, with_labels
from studies.report.analysis import analyse
from studies.report.comparisons import compared_agents
from studies.report.figures import COLOURS, MAX_PANELS, MAX_RATIO, MIN_RATIO, colours, draw_improvement
from studies.report.records import collect
from tests.helpers.trial_files import make_sweep, write_trial
from tests.studies.report.test_report import report


def write_all(sweep, score):
    for trial in sweep.trials:
        write_trial(trial, score(trial.config) if callable(score) else score)
    return sweep.out


def with_rate(rate):
    return {"learner": LearnerConfig(learning_rate=rate)}


def test_a_game_under_two_protocols_is_two_games_and_they_are_not_pooled(tmp_path):
    both = [
        write_all(make_sweep(tmp_path / name, games=("pong",), seeds=4, protocol=name), score)
        for name, score in (("impala", 10.0), ("machado", -10.0))
    ]
    page, numbers = report(*both)
    assert numbers["games"] == ["pong (impala)", "pong (machado)"]
    assert [(cell["game"], cell["finished"], cell["score"]["value"]) for cell in numbers["scores"]] == [
        ("pong (impala)", 4, 10), ("pong (impala)", 4, 10), ("pong (machado)", 4, -10), ("pong (machado)", 4, -10)
    ]  # fmt: skip
    assert numbers["human_normalised"]["interquartile_mean"] == {}
    assert numbers["human_normalised"]["note"].startswith(
        "Not aggregated over games: trials of different protocols (impala, machado)"
    )
    (pair,) = numbers["comparisons"]
    assert (pair["final_score"]["overall"]["kind"], pair["final_score"]["overall"]["estimate"]) == ("not pooled", None)
    assert "trials of different protocols (impala, machado) are not pooled" in page
    assert not list(both[0].glob("report_human_normalised.png"))


def test_games_of_different_protocols_are_not_pooled_either(tmp_path):
    one = write_all(make_sweep(tmp_path / "one", games=("pong",), seeds=2), 1.0)
    two = write_all(make_sweep(tmp_path / "two", games=("breakout",), seeds=2, protocol="machado"), 1.0)
    _, numbers = report(one, two)
    assert numbers["games"] == ["breakout", "pong"]
    assert numbers["human_normalised"]["interquartile_mean"] == {}


def test_only_atari_games_have_a_protocol(tmp_path):
    """Catch was run under both, which has no effect on it: the second is a duplicate, and Pong is pooled."""
    one = write_all(make_sweep(tmp_path / "one", games=("catch", "pong"), seeds=2), 1.0)
    two = write_all(make_sweep(tmp_path / "two", games=("catch",), seeds=2, protocol="machado"), 1.0)
    _, numbers = report(one, two)
    assert numbers["games"] == ["catch", "pong"]
    assert sum("left out, duplicate of another trial" in problem for problem in numbers["problems"]) == 4
    assert numbers["human_normalised"]["games"] == ["pong"]
    assert numbers["comparisons"][0]["final_score"]["overall"]["estimate"] is not None


def test_settings_that_alter_learning_make_new_agents(tmp_path):
    sweeps = [make_sweep(tmp_path / str(rate), seeds=2, **with_rate(rate)) for rate in (6e-4, 3e-4)]
    page, numbers = report(*(write_all(sweep, lambda config: 1000 * config.learner.learning_rate) for sweep in sweeps))
    scores = {cell["agent"]: (cell["finished"], cell["score"]["value"]) for cell in numbers["scores"]}
    assert scores == {
        "none (learning_rate 3e-4)": (2, pytest.approx(0.3)),
        "none (learning_rate 6e-4)": (2, pytest.approx(0.6)),
        "reverse_gvf (learning_rate 3e-4)": (2, pytest.approx(0.3)),
        "reverse_gvf (learning_rate 6e-4)": (2, pytest.approx(0.6)),
    }
    assert list(scores) == sorted(scores)
    assert [(pair["agent"], pair["other"]) for pair in numbers["comparisons"]] == [
        ("reverse_gvf (learning_rate 3e-4)", "none (learning_rate 3e-4)"),
        ("reverse_gvf (learning_rate 6e-4)", "none (learning_rate 6e-4)"),
    ]
    assert numbers["problems"] == []
    assert "reverse_gvf (learning_rate 3e-4) against none (learning_rate 3e-4), final score: too few" in page


def test_agents_may_differ_in_frames(tmp_path):
    sweep = make_sweep(tmp_path / "g", tasks=("none",), seeds=2)
    write_all(sweep, 1.0)
    longer = sweep.trials[0]
    run = replace(longer.config.run, frames=2000, run_dir=str(sweep.out / "longer"))
    write_trial(replace(longer, config=replace(longer.config, run=run)), 2.0)
    _, numbers = report(sweep.out)
    assert [(cell["agent"], cell["finished"]) for cell in numbers["scores"]] == [
        ("none (frames 1_000)", 2),
        ("none (frames 2_000)", 1),
    ]
    assert [(pair["agent"], pair["other"]) for pair in numbers["comparisons"]] == [
        ("none (frames 1_000)", "none (frames 2_000)")
    ]


def test_settings_that_do_not_alter_learning_make_no_new_agent(tmp_path):
    """How it was executed, and what the task does not read."""
    one = make_sweep(tmp_path / "one", seeds=2)
    other = {"auxiliary": {"meta_memory_gb": 1.0, "pixel_control_weight": 3.0}, "keep_checkpoints": 9}
    two = make_sweep(tmp_path / "two", seeds=2, first_seed=3, **other)
    _, numbers = report(write_all(one, 1.0), write_all(two, 1.0))
    assert [(cell["agent"], cell["finished"]) for cell in numbers["scores"]] == [("none", 4), ("reverse_gvf", 4)]
    assert numbers["problems"] == []


def test_settings_may_differ_from_game_to_game(tmp_path):
    one = make_sweep(tmp_path / "one", seeds=2, **with_rate(1e-3))
    two = make_sweep(tmp_path / "two", games=("puddleworld",), seeds=2)
    page, numbers = report(write_all(one, 1.0), write_all(two, 1.0))
    assert [agent["label"] for agent in numbers["agents"]] == ["none", "reverse_gvf"]
    assert numbers["problems"] == []
    assert "learning_rate: 1e-3 on catch, 6e-4 on puddleworld" in page


def test_scores_of_different_numbers_of_games_are_named(tmp_path):
    one = make_sweep(tmp_path / "one", tasks=("none",))
    two = make_sweep(tmp_path / "two", tasks=("gvf",), eval_episodes=0)
    _, numbers = report(write_all(one, 1.0), write_all(two, 1.0))
    assert numbers["problems"] == ["catch: trials differ in --eval-episodes (0, 30); their scores are not comparable"]


def test_the_agents_that_are_compared():
    plain, slow, fast = (
        Variant("none"),
        Variant("gvf", (("learning_rate", 1e-4),)),
        Variant("gvf", (("learning_rate", 1e-3),)),
    )
    slow_plain, fast_plain = (replace(agent, task="none") for agent in (slow, fast))
    assert compared_agents([plain, slow, fast], "gvf") == [(slow, plain), (fast, plain)]
    assert compared_agents([slow_plain, fast_plain, slow, fast], "gvf") == [(slow, slow_plain), (fast, fast_plain)]
    assert compared_agents([slow_plain, fast], "gvf") == [(fast, slow_plain)]
    assert compared_agents([slow, fast], "gvf") == [(slow, fast)]
    assert compared_agents([slow_plain, fast_plain, slow, fast], slow.label) == [
        (slow, slow_plain),
        (slow, fast_plain),
        (slow, fast),
    ]


def test_tasks_that_are_not_built_in_come_last_and_have_colours():
    agents = sort_agents(
        [
            Variant("wonder"),
            Variant("gvf"),
            Variant("amaze"),
            Variant("none"),
            Variant("gvf", (("unroll", 5),)),
        ]
    )
    assert [agent.task for agent in agents] == ["none", "gvf", "gvf", "amaze", "wonder"]
    palette = colours(agents)
    assert (palette["none"], palette["gvf"]) == (COLOURS["none"], COLOURS["gvf"])
    assert len(set(palette.values())) == len(agents)
    assert len(colours([Variant(str(number)) for number in range(99)])) == 99


@pytest.mark.parametrize(
    ("ours", "limit"), [((13.0, 7.0), 0.3), ((10.0, 10.0), MIN_RATIO), ((90.0, 90.0), MAX_RATIO)]
)  # fmt: skip
def test_the_axis_of_improvements_spans_bars_and_intervals(tmp_path, ours, limit):
    sweep = make_sweep(tmp_path / "g", seeds=2)
    write_all(sweep, lambda config: ours[config.run.seed - 1] if config.task == "reverse_gvf" else 10.0)
    with matplotlib.rc_context():
        axes = draw_improvement(analyse(collect([sweep.out]), None)).axes[0]
    assert axes.get_xlim()[0] == pytest.approx(-1.05 * limit)
    ticks = axes.get_xticks()
    assert len(ticks) >= 3
    assert max(abs(ticks)) <= limit + 1e-9


def test_a_figure_of_very_many_comparisons_has_a_bounded_size(tmp_path):
    rates = ",".join(f"{number}e-5" for number in range(1, MAX_PANELS + 12))
    sweep = make_sweep(tmp_path / "g", tasks=("none", "gvf"), seeds=1, vary=(f"gvf.learning_rate={rates}",))
    write_all(sweep, 1.0)
    numbers = analyse(collect([sweep.out]), None)
    assert len(numbers.pairs) > MAX_PANELS
    with matplotlib.rc_context():
        figure = draw_improvement(numbers)
    assert sum(axes.axison for axes in figure.axes) == MAX_PANELS
    assert f"(the first {MAX_PANELS} of {len(numbers.pairs)} comparisons)" in figure.get_suptitle()


def test_settings_as_text():
    values = (3e-4, 0.1, 0.03, 1e-3, 0.25, 40.0, 1.0, 0.0, 6.5e-5, 10_000_000, 20, True, "deep", RunConfig().eval_episodes)
    assert list(map(setting_text, values)) == [
        "3e-4", "0.1", "0.03", "1e-3", "0.25", "40", "1", "0", "6.5e-5", "10_000_000", "20", "true", "deep", "30",
    ]  # fmt: skip
    assert all(float(setting_text(value)) == value for value in (1 / 3, 1e-300, 123456.789, 2e22))


def test_trials_that_lack_a_setting_of_the_others_are_another_agent(tmp_path):
    """As when a task of one's own gets a setting between two trials of the same seed."""
    trial = collect([write_all(make_sweep(tmp_path / "g", tasks=("none",), seeds=1), 1.0)]).trials[0]
    older, newer = (replace(trial, task="m:T", settings=settings) for settings in ({"w": 1}, {"w": 1, "x": 2}))
    labelled = with_labels([older, newer])
    assert [found.agent.settings for found in labelled] == [(), (("x", 2),)]
    other_task = replace(trial, task="m:U", settings={"w": 1})
    assert [found.agent.settings for found in with_labels([newer, other_task])] == [(), ()]
