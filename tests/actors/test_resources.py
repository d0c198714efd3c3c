import pytest

from actors.resources import Resources, available_cores, choose_resources


@pytest.mark.parametrize(
    ("cores", "gpu", "batch_size", "expected"),
    [
        (1, False, 32, Resources(1, 32, 1)),
        (2, False, 32, Resources(1, 32, 1)),
        (8, False, 32, Resources(4, 16, 4)),
        (64, False, 32, Resources(48, 16, 16)),
        (8, True, 256, Resources(7, 32, 1)),
    ],
)
def test_choice_for_a_machine(make_config, cores, gpu, batch_size, expected):
    assert choose_resources(make_config(batch_size=batch_size, frames=10_000), cores, gpu) == expected


def test_what_the_user_says_goes(make_config):
    config = make_config(num_actors=5, envs_per_actor=3, learner_threads=2)
    assert choose_resources(config, cores=16, gpu=False) == Resources(5, 3, 2)


def test_a_containers_quota_counts(tmp_path):
    quota = tmp_path / "cpu.max"
    quota.write_text("100000 100000\n")
    assert available_cores(quota) == 1
    unlimited = available_cores(tmp_path / "missing")
    quota.write_text("max 100000\n")
    assert available_cores(quota) == unlimited
