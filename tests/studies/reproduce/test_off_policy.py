"""The map of Reacher off-policy: its measures by hand."""

import numpy as np
import pytest

from studies.reproduce.off_policy import SETTINGS, WEIGHTS, _errors, divergence_step, effective_share, findings, table
from studies.reproduce.reacher import SETTINGS as REACHER


def test_effective_share_by_hand():
    assert effective_share(np.ones(7)) == 1.0
    assert effective_share(np.array([1.0, 0, 0, 0])) == 0.25
    assert effective_share(np.array([3.0, 1.0])) == pytest.approx(16 / 10 / 2)
    assert effective_share(np.zeros(3)) == 0.0


def run(predictions, mean=-3.0, std=2.0):
    return {
        "return_mean": mean,
        "return_std": std,
        "weights": {name: {"prediction": predictions, "rms_error": [1.0], "effective_share": 0.5} for name in WEIGHTS},
    }


def test_a_mean_ten_standard_deviations_away_has_diverged():
    assert divergence_step(run([-3.0, -22.9, 16.9]), "rho", 250) is None
    assert divergence_step(run([-3.0, -23.1, -3.0]), "rho", 250) == 500
    assert divergence_step(run([17.1]), "rho", 250) == 250


def test_predictions_that_are_not_finite_are_recorded_as_large_numbers():
    mean, error = _errors(np.array([np.nan, np.inf]), np.zeros(2))
    assert mean == pytest.approx(1e30)
    assert error == pytest.approx(1e30)


def test_the_finding_names_the_behaviours_that_are_learnt():
    stds = SETTINGS["behaviour_stds"]
    by_std = [[run([-3.0 + (0.5 if std < 0.2 else 5.0)]), run([-3.0 if std < 0.4 else 100.0])] for std in stds]
    rows = table(by_std)
    assert next(row["error_of_mean"] for row in rows if row["weight"] == "rho") == [0.5, 0.0]
    (line, *_) = findings(rows)
    assert line.startswith("- **rho**: no run diverges for noise 0.1, 0.15, 0.2, 0.3;")
    assert line.endswith("for noise 0.1, 0.15.")


def test_settings_that_both_reacher_studies_have_are_the_same():
    shared = SETTINGS.keys() & REACHER.keys() - {"behaviour_stds", "learning_steps"}
    assert len(shared) > 8
    assert {name: SETTINGS[name] for name in shared} == {name: REACHER[name] for name in shared}
