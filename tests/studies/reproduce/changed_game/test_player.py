"""The frozen agent: what is recorded of its play, by hand, and that saved play continues the same until it is changed."""

import numpy as np
import pytest
import torch

from configs.errors import CheckpointError
from studies.reproduce.changed_game.game import Change, EmulatedGames, GameStep
from studies.reproduce.changed_game.play import AGENTS, Player, agent_directory, load_player_agent

GAME = "space_invaders"


class ScriptedGames:
    """Two games with the given rewards, lost lives and new games of successive steps; it keeps the actions."""

    def __init__(self, reward, life_lost=(), new_game=()):
        self.reward, self.life_lost, self.new_game = reward, life_lost, new_game
        self.actions, self.restarts = [], []

    def __len__(self):
        return 2

    def reset(self):
        return np.zeros((2, 84, 84), dtype=np.uint8)

    def restart(self, where):
        self.restarts.append(where)

    def save(self):
        return len(self.actions)

    def restore(self, saved, change):
        self.actions = self.actions[:saved]

    def step(self, actions):
        t = len(self.actions)
        self.actions.append(actions)
        frames = np.full((2, 84, 84), 10 * (t + 1) % 256, dtype=np.uint8)
        lost, new = (np.array([t in where, False]) for where in (self.life_lost, self.new_game))
        return GameStep(frames, np.array([self.reward[t % len(self.reward)], 0.0]), lost, new)


def test_rewards_and_steps_are_accumulated_until_a_game_begins_or_a_life_is_lost():
    """Discount 1/2. A life is lost with the third step, and a game begins with the fifth."""
    player = Player(GAME, ScriptedGames([4.0, 0.0, 2.0, 8.0, 8.0, 6.0], life_lost=[2], new_game=[4]), 0, 5, discount=0.5)
    play = player.record(6)
    assert play.returns[:, 0, 0].tolist() == [4, 2, 3, 9.5, 0, 6]
    assert play.returns[:, 0, 1].tolist() == [1, 2, 0, 1, 0, 1]
    assert play.returns[:, 1, 1].tolist() == [1, 2, 3, 4, 5, 6]
    assert play.discount[:, 0].tolist() == [[0.5, 1], [0.5, 1], [0.5, 0], [0.5, 1], [0, 0], [0.5, 1]]
    assert play.reward[:, 0].tolist() == [[4, 1], [0, 1], [2, 0], [8, 1], [0, 0], [6, 1]]
    assert play.features.shape == (7, 2, 5)
    assert len(play) == 6


def test_features_are_a_fixed_projection_of_the_torsos_output_for_the_stacked_frames():
    player = Player(GAME, ScriptedGames([0.0]), 0, 5, discount=0.5)
    play = player.record(2)
    again = Player(GAME, ScriptedGames([0.0]), 9, 5, discount=0.5).record(2)
    assert play.features == pytest.approx(again.features)
    agent = load_player_agent(GAME)
    stack = np.zeros((1, 4, 84, 84), dtype=np.uint8)
    stack[0, 2:] = np.array([10, 20])[:, None, None]
    with torch.inference_mode():
        features = agent.torso(agent.preprocess(torch.from_numpy(stack))).numpy()
    assert play.states[1, 0] == pytest.approx((features @ player._projection)[0], abs=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_actions_is_random(share):
    """The scripted frames do not depend on the actions, so that the agent's own are the same throughout."""
    own, changed = ScriptedGames([0.0]), ScriptedGames([0.0])
    player = Player(GAME, own, 0, 5, discount=0.5)
    saved = player.save()
    player.restore(saved, own)
    player.record(150)
    player.restore(saved, changed, Change(random_actions=share))
    player.record(150)
    differs = np.mean(np.array(own.actions) != np.array(changed.actions))
    if share == 0:
        assert differs == 0
    else:
        assert share / 2 < differs <= share


def test_every_stream_begins_a_game_once_at_a_random_one_of_the_first_steps():
    games = ScriptedGames([0.0])
    player = Player(GAME, games, 0, 5, discount=0.5)
    player.record(40, restarts=30)
    assert np.sum(games.restarts, axis=0).tolist() == [1, 1]
    first, second = np.argmax(games.restarts, axis=0)
    assert first != second
    assert max(first, second) < 30
    player.record(5)
    assert len(games.restarts) == 40


def test_saved_play_continues_as_if_nothing_had_happened_and_changes_begin_with_the_next_step():
    games, again = EmulatedGames(GAME, 2, seed=1), EmulatedGames(GAME, 2, seed=1)
    player = Player(GAME, games, 7, 5, discount=0.9)
    player.record(35)
    saved = player.save()
    straight = player.record(8)
    player.restore(saved, again, Change(masked=True))
    masked = player.record(8)
    player.restore(saved, again)
    continued = player.record(8)
    for name in ("features", "reward", "discount", "returns"):
        assert getattr(continued, name) == pytest.approx(getattr(straight, name), abs=1e-5)
    assert (masked.features[0] == straight.features[0]).all()
    assert np.abs(masked.features[1] - straight.features[1]).max() > 1e-3


@pytest.mark.parametrize("game", ["gopher", "space_invaders"])
def test_the_committed_agents_are_small_and_of_their_game(game):
    directory = agent_directory(game)
    config = directory.read_config()
    assert (config.env.game, config.env.protocol, config.agent.lstm_size) == (game, "impala", 0)
    assert sum(path.stat().st_size for path in (AGENTS / game).rglob("*.*")) < 3e6
    assert all(value.isfinite().all() for value in load_player_agent(game).state_dict().values())


def test_a_game_without_an_agent_and_a_discount_of_1_are_refused():
    with pytest.raises(CheckpointError, match="no agent of the game 'pong'; there is gopher, space_invaders"):
        agent_directory("pong")
    with pytest.raises(ValueError, match=r"discount must lie in \[0, 1\), not 1"):
        Player(GAME, ScriptedGames([0.0]), 0, 5, discount=1.0)
