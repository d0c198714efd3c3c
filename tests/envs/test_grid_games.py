"""The grid worlds: transitions by hand, optimal scores, images."""

import numpy as np
import pytest

from envs.grid_games import (
    AGENT,
    BOTH_LEFT,
    CARRYING_AGENT,
    FIRST_OBJECT,
    GRIDS,
    SECOND_LEFT,
    SECOND_OBJECT,
    WALL,
    GridGames,
    collect_objects,
    puddle_depth,
    puddleworld,
)
from envs.stream import EpisodeStream

UP, RIGHT, DOWN, LEFT = range(4)
ALL = np.ones(1, dtype=bool)


def start_at(games, row, column, phase=0):
    """Put the single game into the state with the agent in the given cell."""
    here = (games.grid.cells == (row, column)).all(-1) & (games.grid.phases == phase)
    games._state[:] = np.flatnonzero(here)[0]
    games._steps[:] = 0


def play(games, actions):
    return [games.step(np.array([action]), ALL) for action in actions]


def board_of(step, scale):
    return step.frames[0, 0, ::scale, ::scale]


def test_collecting_both_objects_in_order_by_hand():
    """From beside a, in the lower left corner, to b in the upper left, through a door."""
    games = GridGames(collect_objects(), 1)
    start_at(games, 9, 2)
    steps = play(games, [LEFT])
    assert steps[0].reward[0] == pytest.approx(0.49)
    assert not steps[0].terminated[0]
    board = board_of(steps[0], 4)
    assert board[9, 1] == CARRYING_AGENT
    assert FIRST_OBJECT not in board
    assert board[1, 1] == SECOND_OBJECT
    way = [UP, RIGHT, *[UP] * 7, LEFT]  # The door is in column 2.
    steps = play(games, way)
    assert [step.reward[0] for step in steps[:-1]] == pytest.approx([-0.01] * 9)
    assert not any(step.terminated[0] for step in steps[:-1])
    assert steps[-1].terminated[0]
    assert steps[-1].reward[0] == pytest.approx(0.49)


def test_the_second_object_cannot_be_collected_before_the_first():
    games = GridGames(collect_objects(), 1)
    start_at(games, 2, 1)
    on_it, beside_it = play(games, [UP, RIGHT])
    assert not on_it.terminated[0]
    assert on_it.reward[0] == pytest.approx(-0.01)
    assert board_of(beside_it, 4)[1, 1] == SECOND_OBJECT
    start_at(games, 2, 1, phase=SECOND_LEFT)
    (step,) = play(games, [UP])
    assert step.terminated[0]
    assert step.reward[0] == pytest.approx(0.49)


def test_walls_block_and_a_collected_object_gives_no_more_reward():
    games = GridGames(collect_objects(), 1)
    start_at(games, 1, 9)
    steps = play(games, [UP, RIGHT, DOWN])
    boards = [board_of(step, 4) for step in steps]
    assert [np.argwhere(board == AGENT)[0].tolist() for board in boards] == [[1, 9], [1, 9], [2, 9]]
    assert (boards[0] == WALL).sum() == 121 - 68
    start_at(games, 9, 2, phase=SECOND_LEFT)
    (step,) = play(games, [LEFT])
    assert step.reward[0] == pytest.approx(-0.01)


def test_a_game_is_truncated_at_its_time_limit_unless_it_terminates_there():
    games = GridGames(collect_objects(), 1)
    start_at(games, 1, 9)
    steps = play(games, [UP] * 80)
    assert [step.truncated[0] for step in steps] == [False] * 79 + [True]
    start_at(games, 2, 1, phase=SECOND_LEFT)
    steps = play(games, [LEFT] * 79 + [UP])
    assert steps[-1].terminated[0]
    assert not steps[-1].truncated[0]


def test_puddle_depths_and_rewards_by_hand():
    """The cell at row 2, column 0 has its centre at (.05, .75): .05 from the end of the first puddle's middle line."""
    assert puddle_depth(0.05, 0.75) == pytest.approx(0.05)
    assert puddle_depth(0.45, 0.75) == pytest.approx(0.2)  # In both.
    assert puddle_depth(0.9, 0.1) == 0
    games = GridGames(puddleworld(), 1)
    start_at(games, 4, 0)
    steps = play(games, [UP, UP, RIGHT])
    assert [step.reward[0] for step in steps] == pytest.approx([-0.02, -0.02 - 2 * 0.05, -0.02 - 2 * 0.1])
    start_at(games, 0, 8)
    (step,) = play(games, [RIGHT])
    assert step.terminated[0]
    assert step.reward[0] == pytest.approx(-0.02)


@pytest.mark.parametrize("name", GRIDS)
def test_the_greedy_policy_of_value_iteration_achieves_the_optimal_values(name):
    grid = GRIDS[name]()
    values = grid.optimal_values()
    policy = (grid.reward + np.where(grid.terminal, 0.0, values[grid.next_state])).argmax(-1)
    scores = []
    for start in grid.initial_states:
        state, score = int(start), 0.0
        for _ in range(grid.time_limit):
            action = policy[state]
            score += grid.reward[state, action]
            if grid.terminal[state, action]:
                break
            state = grid.next_state[state, action]
        else:
            pytest.fail("the optimal policy does not terminate within the time limit")
        scores.append(score)
        assert score == pytest.approx(values[start])
    assert np.mean(scores) == pytest.approx(grid.optimal_score)


def test_optimal_values_by_hand():
    """From the cell right of a: 1 step to a, then 8 rows up to b, with a step aside to the door and one back."""
    grid = collect_objects()
    here = (grid.cells == (9, 2)).all(-1) & (grid.phases == BOTH_LEFT)
    assert grid.optimal_values()[here][0] == pytest.approx(1 - 0.01 * 11)
    dry = (puddleworld().cells == (5, 9)).all(-1)  # Five steps up the dry right side.
    assert puddleworld().optimal_values()[dry][0] == pytest.approx(-0.02 * 5)


@pytest.mark.parametrize("name", GRIDS)
def test_every_state_has_an_image_of_its_own(name):
    images = GRIDS[name]().images
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)


@pytest.mark.parametrize("name", GRIDS)
def test_a_game_is_a_function_of_its_seed_and_its_actions(name):
    def frames(num_envs):
        stream = EpisodeStream(GridGames(GRIDS[name](), num_envs), seed=4)
        first = stream.reset()[0]
        return [first] + [stream.step(np.full(num_envs, t % 4)).frames[0] for t in range(150)]

    assert np.array_equal(frames(1), frames(3))
