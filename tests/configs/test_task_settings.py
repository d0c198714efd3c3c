"""Settings of tasks that follow from others."""

import pytest

from configs.tasks import MetaConfig
from envs.registry import game_spec
from learners.learner import Learner


@pytest.mark.parametrize(
    ("updates", "settings", "expected"),
    [
        (1500, {}, 1e-4),  # 150 question updates.
        (1500, {"meta_clip_norm": 0.0}, 1e-3),
        (3000, {}, 5e-5),
        (3000, {"meta_period": 20}, 1e-4),  # 150 again.
        (3000, {"meta_interval": 5}, 2.5e-5),
        (10, {}, 1e-4),
        (1e6, {}, 1e-5),
        (1e6, {"meta_clip_norm": 0.0}, 1e-4),
        (10, {"meta_learning_rate": 3e-3}, 3e-3),
        (1e6, {"meta_learning_rate": 3e-5}, 3e-5),
    ],
)
def test_the_learning_rate_of_questions_follows_from_their_number_of_updates(updates, settings, expected):
    assert MetaConfig(**settings).question_learning_rate(updates) == pytest.approx(expected)


def test_a_learner_counts_the_updates_of_its_run(make_config):
    """20,000 frames of Catch, 20 in an update: 1,000 updates, 200 of the questions."""
    config = make_config(task="reverse_gvf", num_questions=4, meta_interval=5, frames=20_000)
    learner = Learner(config, game_spec("catch", "impala"))
    (group,) = learner._meta._optimiser.param_groups
    assert group["lr"] == pytest.approx(0.015 / 200)
