"""Training runs from fixed seeds are what they were, to the bit."""

import pytest

from tests.golden import CASES, fingerprint, processor, recorded


@pytest.mark.slow
@pytest.mark.parametrize(("game", "task"), CASES)
def test_training_learns_the_same_numbers(game, task):
    known = recorded().get(processor())
    if known is None:
        pytest.skip(f"nothing was recorded on {processor()}: record it with an earlier commit (python -m tests.golden)")
    assert fingerprint(game, task) == known[f"{game} {task}"]
