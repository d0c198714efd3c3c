"""Reacher as an endless stream."""

import gymnasium
import numpy as np

from retrospective.reacher import ReacherStreams


def test_steps_are_those_of_the_arm_and_actions_are_clipped():
    streams = ReacherStreams([5, 6])
    envs = [gymnasium.make("Reacher-v5", max_episode_steps=-1) for _ in range(2)]
    expected = [env.reset(seed=seed)[0] for env, seed in zip(envs, (5, 6), strict=True)]
    assert np.array_equal(streams.state, expected)
    rng = np.random.default_rng(0)
    for _ in range(60):  # Beyond the ordinary task's limit of 50 steps.
        actions = 2 * rng.standard_normal((2, 2))
        state, reward, discount = streams.step(actions)
        for i, env in enumerate(envs):
            true_state, true_reward, *_ = env.step(np.clip(actions[i], -1, 1))
            assert np.array_equal(state[i], true_state)
            assert reward[i] == true_reward
        assert (discount == 1).all()
    streams.close()


def test_reaching_the_target_ends_the_episode_with_a_discount_of_zero():
    """The arm is put beside its target; the next step reaches, the one after it resets."""
    streams = ReacherStreams([0, 1])
    env = streams._envs[0]
    env.set_state(np.array([0.0, 0.0, 0.21, 0.0]), np.zeros(4))  # The outstretched arm ends at x = .21.
    state, reward, discount = streams.step(np.zeros((2, 2)))
    assert np.array_equal(streams.reached(state), [True, False])
    assert np.linalg.norm(state[0, 8:10]) < 0.02
    assert (discount == 1).all()
    assert (reward != 0).all()
    after, reward, discount = streams.step(np.ones((2, 2)))
    assert discount.tolist() == [0, 1]
    assert reward[0] == 0
    assert reward[1] != 0
    assert not np.array_equal(after[0, 4:6], state[0, 4:6])  # Another target.
    assert np.array_equal(after[1, 4:6], state[1, 4:6])
    _, _, discount = streams.step(np.ones((2, 2)))
    assert discount[0] == (0 if streams.reached(after)[0] else 1)
    streams.close()


def test_a_stream_depends_on_its_seed_alone():
    def play(seeds):
        streams = ReacherStreams(seeds)
        rng = np.random.default_rng(2)
        actions = rng.standard_normal((10, 2))
        return [streams.step(np.tile(action, (len(seeds), 1)))[0][0] for action in actions]

    assert np.array_equal(play([7]), play([7, 8]))


def test_the_time_limit_ends_an_episode():
    streams = ReacherStreams([3], time_limit=4)
    discounts, targets = [], []
    for _ in range(11):
        state, _, discount = streams.step(np.zeros((1, 2)))
        discounts.append(discount[0])
        targets.append(state[0, 4])
    assert discounts == [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1]
    assert len(set(targets)) == 3
