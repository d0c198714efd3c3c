"""Orthogonal initialisation, and a way to skip it where weights are about to be loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

from agents.threads import one_thread

RELU_GAIN = math.sqrt(2)
HEAD_GAIN = 0.01
"""Small, so that the initial policy is nearly uniform and the initial values are nearly 0. Large initial outputs give gradients
in the hundreds, which can kill units of the torso."""

_FILLS = ("uniform_", "normal_", "kaiming_uniform_", "kaiming_normal_")
_skipped = False


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Initialise `layer` in place: orthogonal weights with `gain`, zero biases.

    With PyTorch's default the features hardly differ between states, and Pong is not learnt at all.
    """
    if _skipped:
        return
    for name, parameter in layer.named_parameters(recurse=False):
        if "bias" in name:
            nn.init.zeros_(parameter)
        else:
            with one_thread():  # The QR decomposition is slower with more.
                nn.init.orthogonal_(parameter, gain)


class _SkipRandomFills(TorchFunctionMode):
    """Skips the random initialisation of parameters in the constructors of PyTorch's layers."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        target = args[0] if args else (kwargs or {}).get("tensor")
        if isinstance(target, nn.Parameter) and getattr(func, "__name__", "") in _FILLS:
            return target
        return func(*args, **(kwargs or {}))


@contextmanager
def skip_initialisation() -> Iterator[None]:
    """Context in which networks are built with uninitialised weights, without a draw from torch's generator."""
    global _skipped
    before, _skipped = _skipped, True
    try:
        with _SkipRandomFills():
            yield
    finally:
        _skipped = before
