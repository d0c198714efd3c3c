"""The comparisons of a report: by final score and by area, corrected, paired and calibrated."""

import pytest

from configs.commands import ReportConfig
from studies.report.report import make_report
from tests.helpers.trial_files import make_sweep, write_trial
from tests.studies.report.test_report import report


def write_all(sweep, score, height):
    """Curves are level."""
    for trial in sweep.trials:
        task, seed = trial.config.task, trial.config.run.seed
        write_trial(trial, score(task, seed), returns=lambda frame, task=task, seed=seed: height(task, seed))
    return sweep.out


def test_final_score_and_area_have_separate_verdicts(tmp_path):
    """Both end alike, but the area of one is higher for every seed."""
    sweep = make_sweep(tmp_path / "g", seeds=5)
    out = write_all(sweep, lambda task, seed: seed / 10, lambda task, seed: seed / 10 + (task == "reverse_gvf"))
    page, numbers = report(out)
    (pair,) = numbers["comparisons"]
    final, area = (pair[measure]["games"]["catch"] for measure in ("final_score", "area"))
    assert (final["kind"], area["kind"]) == ("open", "better")
    assert area["estimate"]["value"] == pytest.approx(1)
    by_final, by_area = page.split("<h3>By final score")[1].split("<h3>By area under the learning curve")
    assert "no significant difference" in by_final
    assert "better by" not in by_final
    assert "better by" in by_area
    summary = make_report(ReportConfig(directories=(str(out),))).summary
    assert summary[0].startswith("Against none, final score: no significant difference")
    assert summary[1].startswith("Against none, area under the learning curve: better by")
    assert len(summary) == 2


def test_p_values_are_corrected_over_the_table_and_seeds_are_paired(tmp_path):
    """Three comparisons on two games, and over both: 9 p-values, all as small as six seeds allow."""
    sweep = make_sweep(
        tmp_path / "g", games=("catch", "puddleworld"), tasks=("none", "gvf", "random_gvf", "reverse_gvf"), seeds=6
    )
    out = write_all(sweep, lambda task, seed: seed / 10 + (task == "reverse_gvf"), lambda task, seed: 0.0)
    page, numbers = report(out)
    for pair in numbers["comparisons"]:
        for verdict in pair["final_score"]["games"].values():
            assert verdict["kind"] == "better"
            assert verdict["chance"] == pytest.approx(2 / 924)
            assert verdict["corrected"] == pytest.approx(6 * 2 / 924)  # The three over both games are smaller still.
            assert verdict["paired"]["estimate"] == pytest.approx({"value": 1, "low": 1, "high": 1})
            assert verdict["paired"]["chance"] == 2 / 64
        assert pair["final_score"]["overall"]["kind"] == "better"
        assert pair["area"]["games"]["catch"]["kind"] == "open"
        # 6 seeds of 0.1 to 0.6, once more one higher: the variance of all twelve.
        scores = [seed / 10 + shift for seed in range(1, 7) for shift in (0, 1)]
        mean = sum(scores) / 12
        deviation = (sum((score - mean) ** 2 for score in scores) / 11) ** 0.5
        assert pair["final_score"]["overall"]["paired"]["estimate"]["value"] == pytest.approx(1 / deviation)
    assert "p (Holm)" in page


@pytest.mark.parametrize(
    ("tasks", "kind"), [(("none", "reverse_gvf"), "better"), (("none", "gvf", "random_gvf", "reverse_gvf"), "too few")]
)
def test_four_seeds_are_enough_for_one_comparison_and_too_few_for_three(tmp_path, tasks, kind):
    sweep = make_sweep(tmp_path / "g", tasks=tasks, seeds=4)
    _, numbers = report(write_all(sweep, lambda task, seed: seed + 9.0 * (task == "reverse_gvf"), lambda task, seed: 0.0))
    assert {pair["final_score"]["games"]["catch"]["kind"] for pair in numbers["comparisons"]} == {kind}


def test_calibration_on_the_plain_agents_own_trials(tmp_path):
    sweep = make_sweep(tmp_path / "g", seeds=8)
    page, numbers = report(write_all(sweep, lambda task, seed: seed / 10, lambda task, seed: 0.0))
    assert numbers["calibration"] == {"agent": "none", "games": ["catch"], "claims": pytest.approx(2 / 70)}
    assert "false positive rate 2.9%; at most 5% is expected" in page
    few = make_sweep(tmp_path / "few", seeds=3)
    page, numbers = report(write_all(few, lambda task, seed: seed / 10, lambda task, seed: 0.0))
    assert numbers["calibration"] is None
    assert "Calibration: unknown; it needs 4 finished trials" in page


def test_a_single_game_is_not_counted_twice(tmp_path):
    """Its probability of improvement is shown, but not tested."""
    sweep = make_sweep(tmp_path / "g", seeds=4)
    _, numbers = report(write_all(sweep, lambda task, seed: seed + 9.0 * (task != "none"), lambda task, seed: 0.0))
    (pair,) = numbers["comparisons"]
    game, overall = pair["final_score"]["games"]["catch"], pair["final_score"]["overall"]
    assert game["corrected"] == game["chance"] == pytest.approx(2 / 70)
    assert (overall["kind"], overall["chance"], overall["estimate"]["value"]) == ("not pooled", None, 1)
    assert (sweep.out / "report_probability.png").is_file()
