import numpy as np

from envs.registry import make_games
from envs.stream import EnvSpec, EpisodeStream, Games, RawStep

COUNTER = "gym:tests.helpers.counter:Counter-v0"


class Scripted(Games):
    """One game that follows a script of (reward, terminated, truncated, life_lost)."""

    def __init__(self, script):
        self.spec = EnvSpec(num_actions=2, frame_shape=(1, 1, 1), stack=1, frames_per_step=1)
        self.num_envs = 1
        self.script = script
        self.resets = 0

    def reset(self, mask, seeds):
        assert mask.all()
        self.resets += 1
        self.time = 0
        return np.zeros((1, 1, 1, 1), np.uint8)

    def step(self, actions, running):
        reward, terminated, truncated, life_lost = self.script[min(self.time, len(self.script) - 1)]
        self.time += 1
        as_array = lambda x: np.array([x])  # noqa: E731
        frames = np.full((1, 1, 1, 1), self.time, np.uint8)
        return RawStep(frames, as_array(reward), as_array(terminated), as_array(truncated), as_array(life_lost))

    def close(self):
        pass


def play(script, steps):
    games = Scripted(script)
    stream = EpisodeStream(games, seed=0)
    stream.reset()
    return games, [stream.step(np.zeros(1, np.int64)) for _ in range(steps)]


def column(steps, name):
    return [getattr(step, name)[0].item() for step in steps]


def test_termination_has_discount_zero_and_the_next_step_is_the_reset():
    games, steps = play([(1.0, False, False, False), (2.0, True, False, False)], 4)
    assert column(steps, "reward") == [1.0, 2.0, 0.0, 1.0]
    assert column(steps, "discount") == [1.0, 0.0, 0.0, 1.0]
    assert column(steps, "valid") == [True, True, False, True]
    assert column(steps, "first") == [False, False, True, False]
    assert column(steps, "new_game") == [False, False, True, False]
    assert games.resets == 2
    assert [(e.score, e.steps) for step in steps for e in step.episodes] == [(3.0, 2)]


def test_truncation_keeps_a_discount_of_one():
    _, steps = play([(1.0, False, True, False)], 2)
    assert column(steps, "discount") == [1.0, 0.0]
    assert column(steps, "valid") == [True, False]


def test_a_life_lost_at_the_time_limit_has_discount_zero():
    _, steps = play([(1.0, False, True, True)], 2)
    assert column(steps, "discount") == [0.0, 0.0]
    assert column(steps, "first") == [False, True]
    assert column(steps, "valid") == [True, False]


def test_life_loss_ends_the_learning_episode_and_not_the_game():
    script = [(5.0, False, False, True), (7.0, False, False, False), (1.0, True, False, True)]
    games, steps = play(script, 3)
    assert column(steps, "discount") == [0.0, 1.0, 0.0]
    assert column(steps, "first") == [True, False, False]
    assert column(steps, "new_game") == [False, False, False]
    assert column(steps, "valid") == [True, True, True]
    assert games.resets == 1
    assert [e.score for step in steps for e in step.episodes] == [13.0]


def test_a_restored_stream_continues_identically():
    rng = np.random.default_rng(0)
    actions = rng.integers(3, size=(60, 4))
    for name in (COUNTER, "catch"):
        original = EpisodeStream(make_games(name, "impala", 4), seed=5)
        original.reset()
        for a in actions[:31]:
            original.step(a)
        copy = EpisodeStream(make_games(name, "impala", 4), seed=99)
        copy.load_state_dict(original.state_dict())
        for a in actions[31:]:
            ours, theirs = original.step(a), copy.step(a)
            for field in ("frames", "reward", "discount", "valid", "first", "new_game"):
                assert np.array_equal(getattr(ours, field), getattr(theirs, field)), field
            assert ours.episodes == theirs.episodes
