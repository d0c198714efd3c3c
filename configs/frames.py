"""Counts of frames as people write them: 10_000_000, 1e7, 10M, 500k."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

_SUFFIXES = {"k": 10**3, "m": 10**6}
_MOST_DIGITS = 18
"""Far beyond use; `1e999999999` would fill the memory with its digits."""


def parse_frames(text: str) -> int:
    """The count that `text` stands for; raises ValueError where that is not a whole number."""
    factor = _SUFFIXES.get(text[-1:].lower(), 1)
    try:
        number = Decimal(text[:-1] if factor > 1 else text)
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError(f"{text!r} is not a count of frames; write it like 10_000_000, 1e7, 10M or 500k")
    if number.adjusted() >= _MOST_DIGITS:
        raise ValueError(f"{text!r} is too large for a count of frames")
    frames = number * factor
    if frames != frames.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number of frames")
    return int(frames)


FrameCount = Annotated[
    int,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="FRAMES",
        instance_from_str=lambda words: parse_frames(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda frames: [f"{frames:_}"],
    ),
]
"""Type of a flag that takes a count of frames."""
