from types import SimpleNamespace

import pytest

from training import progress
from training.progress import PLAIN_SECONDS, Progress, counted


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: Clock.now))
    return Clock


def test_where_there_is_no_terminal_plain_lines_come_at_first_more_often(clock, capsys):
    bar = Progress("catch", total=100_000, done=1000)
    times = []
    for second in range(1, 200):
        clock.now = 1000.0 + second
        bar.update(1000 + 50 * second, "return 0.5")
        if line := capsys.readouterr().err:
            times.append(second)
            assert line.startswith(f"catch: {1000 + 50 * second:,} / 100,000 frames, 50/s, return 0.5, 0:")
            assert line.count("\n") == 1
    assert times == [5, 15, 30, 60, 120, 180]
    bar.close()
    assert capsys.readouterr().err == ""


def test_slow_things_are_counted_by_the_minute(clock, capsys):
    bar = Progress("evaluating pong", total=30, unit="game")
    clock.now += PLAIN_SECONDS
    bar.update(0, "1,600 steps")
    assert capsys.readouterr().err == "evaluating pong: 0 / 30 games, 0.0/min, 1,600 steps, unknown time left\n"
    clock.now += PLAIN_SECONDS
    bar.update(3)
    assert capsys.readouterr().err == "evaluating pong: 3 / 30 games, 3.0/min, 0:09:00 left\n"


def test_the_time_until_the_first_frames_says_nothing_about_the_speed(clock, capsys):
    bar = Progress("pong", total=1000, starts_slowly=True)
    clock.now += 14
    bar.update(10)
    assert capsys.readouterr().err == "pong: 10 / 1,000 frames, unknown time left\n"
    clock.now += 9
    bar.update(190)
    assert capsys.readouterr().err == "pong: 190 / 1,000 frames, 20/s, 0:00:41 left\n"


def test_one_thing_is_counted_as_one(clock, capsys):
    bar = Progress("evaluating pong", total=1, unit="game")
    clock.now += PLAIN_SECONDS
    bar.update(0)
    assert capsys.readouterr().err == "evaluating pong: 0 / 1 game, 0.0/min, unknown time left\n"
    assert [counted(number, "game") for number in (0, 1, 2, 1000)] == ["0 games", "1 game", "2 games", "1,000 games"]
