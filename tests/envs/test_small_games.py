import gymnasium
import numpy as np
import pytest

from configs.errors import GameError
from envs.catch import CELL, COLUMNS, ROWS, Catch
from envs.gymnasium_games import GymnasiumGames, frame_skip
from envs.registry import applied_protocol, built_in_game, check_game
from envs.stream import EpisodeStream

ALL = np.ones(1, dtype=bool)


def cells(frame):
    return frame[0, ::CELL, ::CELL]


def test_catch_by_hand():
    games = Catch(1)
    board = cells(games.reset(ALL, np.array([3]))[0])
    ball, paddle = int(board[0].argmax()), int(board[ROWS - 1].argmax())
    assert (board > 0).sum() == 2
    for row in range(1, ROWS):
        move = (1, -1, 0)[row % 3]
        paddle = min(max(paddle + move, 0), COLUMNS - 1)
        step = games.step(np.array([1 + move]), ALL)
        board = cells(step.frames[0])
        assert board[row, ball] == 255
        assert board[ROWS - 1, paddle] > 0
        assert step.terminated[0] == (row == ROWS - 1)
        assert step.reward[0] == (0.0 if row < ROWS - 1 else 1.0 if ball == paddle else -1.0)


def test_following_the_ball_in_catch_is_optimal_and_staying_is_not():
    def mean_score(policy):
        stream = EpisodeStream(Catch(64), seed=0)
        frames, scores = stream.reset(), []
        for _ in range(40):
            boards = frames[:, 0, ::CELL, ::CELL]
            step = stream.step(policy(boards))
            frames = step.frames
            scores += [episode.score for episode in step.episodes]
        return np.mean(scores)

    def follow(boards):
        ball = (boards[:, : ROWS - 1] == 255).any(1).argmax(1)
        return 1 + np.sign(ball - boards[:, ROWS - 1].argmax(1))

    assert mean_score(follow) == Catch.optimal_score
    assert mean_score(lambda boards: np.ones(64, np.int64)) == pytest.approx(2 / COLUMNS - 1, abs=0.15)


def test_gymnasium_images_are_resized_and_keep_their_channels():
    class Colours(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (96, 120, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.broadcast_to(np.array([10, 20, 30], np.uint8), (96, 120, 3)).copy(), {}

    gymnasium.register("Colours-v0", Colours)
    games = GymnasiumGames("Colours-v0", 2)
    assert games.spec.observation_shape == (12, 84, 84)
    frames = games.reset(np.ones(2, bool), np.zeros(2, int))
    assert [np.unique(frames[0, c]).tolist() for c in range(3)] == [[10], [20], [30]]


@pytest.mark.parametrize(
    ("env_id", "frames", "error"), [("ALE/Pong-v5", 4, 0), ("PongNoFrameskip-v4", 1, 0), ("Pong-v4", 3, 0.1)]
)
def test_frames_per_step_of_ale_environments_is_their_frame_skip(env_id, frames, error):
    """The emulator's own count is the reference; Pong-v4 draws 2, 3 or 4 frames for each action."""
    games, steps = GymnasiumGames(env_id, 1), 300
    games.reset(ALL, np.array([1]))
    ale = games._envs[0].unwrapped.ale
    before = ale.getFrameNumber()
    for _ in range(steps):
        games.step(np.zeros(1, dtype=np.int64), ALL)
    assert games.spec.frames_per_step == frames
    assert (ale.getFrameNumber() - before) / steps == pytest.approx(frames, abs=error)
    games.close()


@pytest.mark.parametrize(
    ("arguments", "frames"),
    [({}, 1), ({"frameskip": 6}, 6), ({"frameskip": [2, 5]}, 3)]
    + [({"frameskip": nonsense}, 1) for nonsense in (None, True, 0, -4, "4", 2.5, (5, 2), (0, 3), (1, 2, 3))],
)
def test_the_frame_skip_comes_from_the_registration(arguments, frames):
    assert frame_skip(gymnasium.envs.registration.EnvSpec("Any-v0", kwargs=arguments)) == frames
    assert frame_skip(None) == 1


def test_ale_environments_have_a_built_in_game_and_no_protocol():
    assert built_in_game("gym:ALE/Pong-v5") == built_in_game("gym:ale_py:ALE/Pong-v5") == "pong"
    for name in ("pong", "catch", "ALE/Pong-v5", "gym:CartPole-v1", "gym:Nothing-v9", "gym:ALE/Warlords-v5"):
        assert built_in_game(name) is None, name
    assert applied_protocol("pong", "machado") == "machado"
    for name in ("catch", "puddleworld", "gym:ALE/Pong-v5", "gym:CarRacing-v3"):
        assert applied_protocol(name, "impala") is None, name


@pytest.mark.parametrize(("env_id", "what"), [("CartPole-v1", "observes"), ("Pendulum-v1", "actions")])
def test_unsupported_spaces_are_refused_with_the_reason(env_id, what):
    with pytest.raises(GameError, match=what):
        GymnasiumGames(env_id, 1)


def test_unknown_games_are_refused_with_the_nearest_name():
    with pytest.raises(GameError, match="did you mean breakout"):
        check_game("brekout")
    with pytest.raises(GameError, match=r"for a list: .*launch\.py games"):
        check_game("xqzzz")


@pytest.mark.parametrize("name", ["combat", "joust", "maze_craze", "maze-craze", "Warlords"])
def test_two_player_games_are_refused_as_such(name):
    with pytest.raises(GameError, match="needs two players") as error:
        check_game(name)
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gym:Nothing-v9", "registered; if a package provides it, name its module: gym:MODULE:Nothing-v9"),
        (
            "gym:MiniGrid-Empty-5x5-v0",
            "registered; if a package provides it, name its module: gym:minigrid:MiniGrid-Empty-5x5-v0",
        ),
        ("gym:CarRacing-v2", "registered; did you mean gym:CarRacing-v3? if a package .*: gym:MODULE:CarRacing-v2"),
    ],
)
def test_unregistered_ids_are_refused_with_how_to_name_their_module(name, hint):
    with pytest.raises(GameError, match=f"unknown game '{name}': .*{hint.replace('?', '[?]')}$"):
        check_game(name)


def test_modules_that_cannot_be_imported_are_refused_with_what_to_install(tmp_path, monkeypatch):
    with pytest.raises(
        GameError, match=r"'no_such.envs' .* cannot be imported: No module named 'no_such'; .*pip install no_such,"
    ):
        GymnasiumGames("no_such.envs:Game-v0", 1)
    (tmp_path / "needs_another.py").write_text("import no_such_dependency.part")
    (tmp_path / "fails_itself.py").write_text("raise OSError('no\\ndisplay')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(GameError, match=r"'needs_another' .*pip install no_such_dependency,"):
        GymnasiumGames("needs_another:Game-v0", 1)
    with pytest.raises(GameError, match=r"'fails_itself' .* cannot be imported: OSError: no"):
        GymnasiumGames("fails_itself:Game-v0", 1)
    with pytest.raises(GameError, match="cannot be made: Environment `Game` doesn't exist"):
        GymnasiumGames("tests.helpers.counter:Game-v0", 1)
