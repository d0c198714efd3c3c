import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

from configs.errors import GameError
from envs.atari import START_DEPENDS_ON_RAM, TWO_PLAYER_GAMES, AtariGames, atari_games, published_scores
from envs.frame_stack import FrameStack
from envs.registry import check_game
from envs.stream import EpisodeStream, episode_seed

N = 3


def make_stream(game, protocol="impala", seed=0, num_threads=1):
    return EpisodeStream(AtariGames(game, protocol, N, num_threads), seed)


def random_play(stream, steps, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield stream.step(rng.integers(stream.spec.num_actions, size=stream.num_envs))


def test_all_single_player_roms_are_listed_and_57_have_published_scores():
    assert len(atari_games()) > 100
    assert len(published_scores()) == 57
    assert set(published_scores()) <= set(atari_games())
    pong = published_scores()["pong"]
    assert pong.human_normalised(pong.human) == 1.0
    assert pong.human_normalised(pong.random) == 0.0


def test_frame_stacks_equal_those_of_ale_py_across_resets():
    """The reference stacks frames inside ale-py."""
    stream = EpisodeStream(AtariGames("breakout", "impala", 1), seed=0)
    stack = FrameStack(stream.spec, 1)
    reference = AtariVectorEnv("breakout", 1, stack_num=4, noop_max=30, use_fire_reset=False, reward_clipping=False)
    rng = np.random.default_rng(0)
    ours = stack.push(stream.reset(), np.array([True]))
    theirs, _ = reference.reset(seed=np.array([episode_seed(0, 0, 0)]))
    games = 0
    for _ in range(600):
        assert np.array_equal(ours, theirs)
        action = rng.integers(4, size=1)
        step = stream.step(action)
        ours = stack.push(step.frames, step.new_game)
        if step.new_game[0]:
            games += 1
            theirs, _ = reference.reset(options={"reset_mask": np.array([True])})
        else:
            theirs, *_ = reference.step(action)
    assert games >= 2


def test_life_loss_ends_neither_the_game_nor_the_score():
    stream = make_stream("breakout")
    stream.reset()
    score = np.zeros(N)
    lives_lost = np.zeros(N, dtype=int)
    finished = 0
    for step in random_play(stream, 700):
        score += step.reward
        lives_lost += step.first & ~step.new_game
        for env, episode in zip(step.ended, step.episodes, strict=True):
            assert episode.score == score[env]
            assert lives_lost[env] == 4  # The loss of the fifth ends the game.
            score[env], lives_lost[env] = 0.0, 0
            finished += 1
    assert finished >= 3


def test_machado_protocol_has_all_actions_and_no_end_on_life_loss():
    stream = make_stream("breakout", "machado")
    assert stream.spec.num_actions == 18
    stream.reset()
    for step in random_play(stream, 300):
        assert not (step.first & ~step.new_game).any()
        assert np.array_equal(step.discount == 0, ~step.valid | np.isin(np.arange(N), step.ended))


def test_actions_are_sticky_under_machado_only():
    """Before the ball is served the seed affects only which actions are repeated, no-op starts included."""
    to_the_right = np.random.default_rng(0).integers(2, size=50)

    def frames_of(protocol, seed):
        right, left = (3, 4) if protocol == "machado" else (2, 3)  # Of all actions, and of the minimal ones.
        games = AtariGames("breakout", protocol, 1)
        games.reset(np.array([True]), np.array([seed]))
        actions = np.where(to_the_right, right, left)
        return np.stack([games.step(np.array([action]), np.array([True])).frames for action in actions])

    assert np.array_equal(frames_of("machado", 1), frames_of("machado", 1))
    assert not np.array_equal(frames_of("machado", 1), frames_of("machado", 2))
    assert np.array_equal(frames_of("impala", 1), frames_of("impala", 2))
    assert len(np.unique(frames_of("impala", 1), axis=0)) > 5  # The paddle does move.


@pytest.mark.parametrize("protocol", ["impala", "machado"])
def test_trajectories_are_a_function_of_the_seed(protocol):
    def frames_of(seed, threads):
        stream = make_stream("breakout", protocol, seed, threads)
        stream.reset()
        return np.stack([step.frames for step in random_play(stream, 200)])

    first = frames_of(1, threads=1)
    assert np.array_equal(first, frames_of(1, threads=2))
    assert not np.array_equal(first, frames_of(2, threads=1))


@pytest.mark.parametrize("protocol", ["impala", "machado"])
@pytest.mark.parametrize("steps", [250, pytest.param(700, marks=pytest.mark.slow)])
def test_a_restored_stream_continues_identically(monkeypatch, protocol, steps):
    """Also with games that are not the first of their seed."""
    monkeypatch.setattr("envs.atari.GAMES_PER_SEED", 3)
    original = make_stream("breakout", protocol)
    original.reset()
    games = sum(len(step.ended) for step in random_play(original, steps))
    assert steps < 700 or games >= 2 * N
    copy = make_stream("breakout", protocol, seed=9)
    copy.load_state_dict(original.state_dict())
    for ours, theirs in zip(random_play(original, 400, 1), random_play(copy, 400, 1), strict=True):
        assert np.array_equal(ours.frames, theirs.frames)
        assert np.array_equal(ours.first, theirs.first)
        assert ours.episodes == theirs.episodes


def test_successive_games_of_one_seed_differ():
    games = AtariGames("pong", "impala", 1)
    everywhere = np.array([True])
    games.reset(everywhere, np.array([3]))
    later = set()
    for _ in range(5):
        games.restart(everywhere)
        later.add(b"".join(games.step(np.array([0]), everywhere).frames.tobytes() for _ in range(40)))
    assert len(later) > 2


def test_two_player_roms_are_refused():
    assert not set(atari_games()) & TWO_PLAYER_GAMES
    with pytest.raises(GameError, match="joust needs two players"):
        check_game("joust")


@pytest.mark.slow
@pytest.mark.parametrize("game", sorted(set(atari_games()) - START_DEPENDS_ON_RAM))
def test_a_restarted_game_does_not_depend_on_earlier_play(game):
    def frames_of(steps_before):
        games = AtariGames(game, "impala", 1)
        everywhere = np.array([True])
        games.reset(everywhere, np.array([3]))
        rng = np.random.default_rng(1)
        for _ in range(steps_before):
            games.step(rng.integers(games.spec.num_actions, size=1), everywhere)
        games.restart(everywhere)
        rng = np.random.default_rng(2)
        return np.stack([games.step(rng.integers(games.spec.num_actions, size=1), everywhere).frames for _ in range(60)])

    first = frames_of(0)
    assert np.array_equal(first, frames_of(37))
    assert np.array_equal(first, frames_of(91))
