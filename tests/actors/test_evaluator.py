import imageio.v2 as imageio
import numpy as np
import pytest
import torch

from actors.evaluator import EvaluationResult, Player, evaluate, record_video
from actors.rollout import sample_actions
from agents.agent import Agent
from envs.registry import make_games
from envs.stream import EpisodeStream

COUNTER = "gym:tests.helpers.counter:Counter-v0"


def make_agent(game, protocol="impala"):
    return Agent(make_games(game, protocol, 1).spec, "shallow")


def test_exactly_the_requested_number_of_whole_games_is_played():
    told = []
    result = evaluate(make_agent(COUNTER), COUNTER, "impala", 21, seed=0, on_step=lambda *counts: told.append(counts))
    done, steps = zip(*told, strict=True)
    assert len(result.scores) == len(result.steps) == 21
    assert list(done) == sorted(done)
    assert list(steps) == [16 * (n + 1) for n in range(len(steps))]
    assert (done[0], done[-1]) == (0, 21)  # Called at every step, so that a stop need not wait for the end of a game.
    for score, steps in zip(result.scores, result.steps, strict=True):
        assert score == steps * (steps + 1) / 2


def test_evaluation_is_not_biased_towards_short_games():
    """Sixteen environments, one game each: the scores must be those of their first games, long ones included."""
    lengths = evaluate(make_agent(COUNTER), COUNTER, "impala", episodes=16, seed=0).steps
    assert max(lengths) == 9


def test_summary_by_hand():
    summary = EvaluationResult("pong", "impala", [1.0, 2.0, 6.0], [5, 5, 5]).summary()
    assert summary["mean"] == 3.0
    assert summary["median"] == 2.0
    assert summary["standard_error"] == pytest.approx((7 / 3) ** 0.5)
    assert summary["human_normalised"] == pytest.approx((3.0 + 20.7) / (14.6 + 20.7))
    assert summary["protocol"] == "impala"
    alone = EvaluationResult("catch", "impala", [1.0], [7]).summary()
    assert alone["standard_error"] is None
    assert alone["human_normalised"] is None
    assert alone["protocol"] is None
    assert (summary["optimal"], alone["optimal"]) == (None, 1.0)


@pytest.mark.parametrize("game", ["collect_objects", "gym:ALE/Pong-v5", COUNTER])
def test_games_outside_the_atari_protocols_have_no_protocol_and_no_human_score(game):
    summary = EvaluationResult(game, "impala", [1.0, 2.0], [5, 5]).summary()
    assert (summary["protocol"], summary["human_normalised"]) == (None, None)


def test_actions_are_sampled_from_the_policy():
    rng = np.random.default_rng(0)
    probabilities = np.array([0.1, 0.6, 0.3])
    actions = sample_actions(np.tile(np.log(probabilities), (20_000, 1)), rng)
    assert np.bincount(actions) / 20_000 == pytest.approx(probabilities, abs=0.015)


def test_greedy_actions_are_the_most_probable_ones():
    agent = make_agent("catch")
    with torch.no_grad():
        agent.policy.bias[:] = torch.tensor([0.0, 1.0, 0.9])

    def actions(greedy):
        stream = EpisodeStream(make_games("catch", "impala", 4), seed=0)
        player = Player(agent, stream, seed=0, greedy=greedy)
        return {int(action) for _ in range(20) for action in player.step()[0]}

    assert actions(greedy=False) == {0, 1, 2}
    assert actions(greedy=True) == {1}
    for greedy in (False, True):
        assert evaluate(agent, "catch", "impala", episodes=2, seed=0, greedy=greedy).summary()["greedy"] is greedy


@pytest.mark.parametrize("game", ["catch", "breakout"])
def test_a_video_is_written(tmp_path, game):
    path = tmp_path / "videos" / "game.mp4"
    record_video(make_agent(game), game, "impala", seed=0, path=path)
    frames = imageio.mimread(path, memtest=False)
    assert len(frames) >= 8
    assert frames[0].shape[0] >= 200
    if game == "breakout":
        assert frames[0].shape == (210, 160, 3)
        assert np.abs(frames[0][..., 0].astype(int) - frames[0][..., 2]).max() > 50  # In colour.
