from types import SimpleNamespace

import pytest

from studies import progress
from studies.progress import PLAIN_SECONDS, Progress


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: Clock.now))
    return Clock


def test_where_there_is_no_terminal_a_plain_line_comes_once_a_minute(clock, capsys):
    bar = Progress("catch", total=10_000, done=1000)
    for second in range(1, int(PLAIN_SECONDS)):
        clock.now = 1000.0 + second
        bar.update(1000 + 50 * second, "return 0.5")
    assert capsys.readouterr().err == ""
    clock.now = 1000.0 + PLAIN_SECONDS
    bar.update(4000, "return 0.5")
    assert capsys.readouterr().err == "catch: 4,000 / 10,000 frames, 50/s, return 0.5, 0:02:00 left\n"
    clock.now += 1
    bar.update(4050)
    bar.close()
    assert capsys.readouterr().err == ""


def test_slow_things_are_counted_by_the_minute(clock, capsys):
    bar = Progress("evaluating pong", total=30, unit="games")
    clock.now += PLAIN_SECONDS
    bar.update(0)
    assert capsys.readouterr().err == "evaluating pong: 0 / 30 games, 0.0/min, unknown time left\n"
    clock.now += PLAIN_SECONDS
    bar.update(3)
    assert capsys.readouterr().err == "evaluating pong: 3 / 30 games, 3.0/min, 0:09:00 left\n"
