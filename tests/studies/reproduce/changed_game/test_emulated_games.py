"""Games that are saved, continued and changed: each change does what it says, and nothing before its step."""

from dataclasses import replace

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

from configs.errors import ConfigError
from envs.atari import PROTOCOLS
from studies.reproduce.changed_game import game as module
from studies.reproduce.changed_game.game import (
    LUMINANCE,
    MASKED_COLUMNS,
    Change,
    EmulatedGames,
    area_weights,
    available,
    shrink,
)

GAME = "space_invaders"
COUNT = 2


@pytest.fixture(scope="module")
def games():
    return EmulatedGames(GAME, COUNT, seed=3)


@pytest.fixture(scope="module")
def sticky_games():
    return EmulatedGames(GAME, COUNT, seed=3, sticky=1.0)


@pytest.fixture(scope="module")
def saved(games):
    """In the middle of play, which begins after some 30 steps and stands still while a ship is destroyed."""
    games.reset()
    for actions in random_actions(35, seed=1):
        games.step(actions)
    return games.save()


def random_actions(steps, seed=0):
    return np.random.default_rng(seed).integers(6, size=(steps, COUNT))


def continued(games, saved, change, steps=20, seed=0):
    """Steps of the continued games, and the RAM of the first after each."""
    games.restore(saved, change)
    found, ram = [], []
    for actions in random_actions(steps, seed):
        found.append(games.step(actions))
        ram.append(games._emulators[0].getRAM().copy())
    return found, np.array(ram)


def frames_of(steps):
    return np.stack([step.frames for step in steps])


def test_area_weights_by_hand():
    assert area_weights(5, 2) == pytest.approx(np.array([[0.4, 0.4, 0.2, 0, 0], [0, 0, 0.2, 0.4, 0.4]]))


def test_blocks_of_a_screen_shrink_as_the_whole_screen_would():
    screens = np.random.default_rng(0).integers(256, size=(2, 210, 160))
    whole = area_weights(210, 84) @ screens.astype(np.float32) @ area_weights(160, 84).T
    assert np.abs(shrink(screens) - whole).max() < 0.5 + 1e-3


def test_frames_and_rewards_are_those_that_agents_are_trained_on(monkeypatch):
    monkeypatch.setattr(module, "PROTOCOLS", {"impala": replace(PROTOCOLS["impala"], noop_max=0)})
    theirs = AtariVectorEnv(
        GAME, 1, num_threads=1, noop_max=0, stack_num=1, frameskip=4, reward_clipping=False, use_fire_reset=False
    )
    ours = EmulatedGames(GAME, 1, seed=5)
    first, _ = theirs.reset(seed=np.array([5]))
    assert np.abs(ours.reset()[0] - first[0, 0].astype(int)).max() <= 1
    for actions in random_actions(80)[:, :1]:
        frames, reward, *_ = theirs.step(actions.astype(np.int32))
        step = ours.step(actions)
        difference = np.abs(step.frames[0] - frames[0, 0].astype(int))
        assert difference.max() <= 1  # OpenCV rounds a half otherwise.
        assert (difference > 0).mean() < 0.01
        assert step.reward[0] == reward[0]
    theirs.close()


def test_unchanged_games_continue_the_same_however_often_and_whatever_was_changed_between(games, saved):
    steps, ram = continued(games, saved, Change())
    for change in (Change(mode=1), Change(difficulty=1), Change(masked=True), Change(recoloured=True), Change(frame_skip=8)):
        continued(games, saved, change, steps=3)
        again, ram_again = continued(games, saved, Change())
        assert (ram_again == ram).all()
        assert (frames_of(again) == frames_of(steps)).all()
        assert [step.reward.tolist() for step in again] == [step.reward.tolist() for step in steps]


@pytest.mark.parametrize("change", [Change(masked=True), Change(recoloured=True)])
def test_a_changed_screen_leaves_the_game_alone(games, saved, change):
    normal, ram = continued(games, saved, Change())
    changed, changed_ram = continued(games, saved, change)
    assert (changed_ram == ram).all()
    assert (frames_of(changed) != frames_of(normal)).any((1, 2, 3)).all()


def test_a_masked_screen_is_black_in_its_middle_quarter_and_the_same_elsewhere(games, saved):
    normal, masked = (frames_of(continued(games, saved, change, 3)[0]) for change in (Change(), Change(masked=True)))
    assert (masked[..., MASKED_COLUMNS] == 0).all()
    normal[..., MASKED_COLUMNS] = 0
    assert (masked == normal).all()
    assert MASKED_COLUMNS.stop - MASKED_COLUMNS.start == 84 / 4


def test_a_recoloured_screen_has_its_colours_exchanged(games, saved):
    games.restore(saved, Change(recoloured=True))
    emulator = games._emulators[0]
    red, green, blue = np.moveaxis(emulator.getScreenRGB().astype(float), -1, 0)
    expected = LUMINANCE[1] * red + LUMINANCE[2] * green + LUMINANCE[0] * blue
    assert games._screen(emulator) == pytest.approx(expected, abs=1e-3)
    assert np.abs(expected - emulator.getScreenGrayscale()).max() > 20


@pytest.mark.parametrize("skip", [1, 4, 8])
def test_a_step_has_as_many_frames_as_the_frame_skip(games, saved, skip):
    games.restore(saved, Change(frame_skip=skip))
    before = games._emulators[0].getEpisodeFrameNumber()
    games.step(random_actions(1)[0])
    assert games._emulators[0].getEpisodeFrameNumber() - before == skip


def test_another_difficulty_changes_the_running_game(games, saved):
    _, normal = continued(games, saved, Change())
    steps, changed = continued(games, saved, Change(difficulty=1))
    assert (changed != normal).any()
    assert not any(step.new_game.any() for step in steps)


def test_another_mode_begins_with_a_new_game_and_differs_from_one_in_the_same_mode(games, saved):
    steps, same = continued(games, saved, Change(new_game=True))
    other_steps, other = continued(games, saved, Change(mode=1))
    for found in (steps, other_steps):
        assert [step.new_game.all() for step in found[:2]] == [True, False]
    assert (other[0] != same[0]).any()
    assert games._emulators[0].lives() == 3


def test_with_complete_stickiness_the_actions_have_no_effect(games, sticky_games, saved):
    sticky = Change(sticky=1.0)
    _, one = continued(sticky_games, saved, sticky, seed=0)
    _, two = continued(sticky_games, saved, sticky, seed=9)
    assert (one == two).all()
    _, normal_one = continued(games, saved, Change(), seed=0)
    _, normal_two = continued(games, saved, Change(), seed=9)
    assert (normal_one != normal_two).any()
    assert (normal_one != one).any()


def test_a_game_that_ends_is_followed_by_the_next_and_lives_are_counted(games, saved):
    games.restore(saved)
    lost, begun = 0, 0
    for actions in random_actions(700):
        step = games.step(actions)
        lost, begun = lost + int(step.life_lost[0]), begun + int(step.new_game[0])
        if begun:
            break
    assert begun == 1
    assert lost in (2, 3)  # Of three; the last may be counted with the end of the game.
    assert games._emulators[0].lives() == 3


def test_games_are_restarted_where_it_is_asked_for(games, saved):
    games.restore(saved)
    games.restart(np.array([False, True]))
    found = [games.step(actions).new_game.tolist() for actions in random_actions(2)]
    assert found == [[False, True], [False, False]]


def test_modes_and_difficulties_of_a_game():
    assert available("gopher") == ([0, 2], [0, 1])


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"sticky": 1.5}, r"sticky must lie in \[0, 1\], not 1.5"),
        ({"random_actions": -0.1}, "random_actions must lie"),
        ({"random_actions": float("nan")}, "random_actions must lie"),
        ({"frame_skip": 0}, "frame_skip must be at least 1"),
    ],
)
def test_impossible_changes_are_refused(values, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Change(**values)


def test_changes_that_the_game_does_not_have_are_refused(games, saved):
    with pytest.raises(ConfigError, match="the game has no mode 99; it has 0, 1"):
        games.restore(saved, Change(mode=99))
    with pytest.raises(ConfigError, match="no difficulty 2; it has 0, 1"):
        games.restore(saved, Change(difficulty=2))
    with pytest.raises(ConfigError, match=r"sticky actions of 0.0, not 0.25"):
        games.restore(saved, Change(sticky=0.25))
    with pytest.raises(ConfigError, match="no ROM of the game 'chess'"):
        EmulatedGames("chess", 1, seed=0)
