"""First weights of networks, and networks that need none because theirs are about to be loaded."""

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
"""Small, so that the first policy is nearly uniform and the first values are nearly 0: wild ones give gradients in the
hundreds that can kill the torso's units before anything is learnt."""

_FILLS = ("uniform_", "normal_", "kaiming_uniform_", "kaiming_normal_")
_loaded_later = False


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Orthogonal weights and zero biases.

    With PyTorch's own initialisation the features hardly differ between states, and Pong is not learnt at all.
    """
    if _loaded_later:
        return
    for name, parameter in layer.named_parameters(recurse=False):
        if "bias" in name:
            nn.init.zeros_(parameter)
        else:
            with one_thread():  # A QR decomposition.
                nn.init.orthogonal_(parameter, gain)


class _NoDraws(TorchFunctionMode):
    """Skips the random fills of parameters with which PyTorch's layers begin."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        target = args[0] if args else (kwargs or {}).get("tensor")
        if isinstance(target, nn.Parameter) and getattr(func, "__name__", "") in _FILLS:
            return target
        return func(*args, **(kwargs or {}))


@contextmanager
def skip_initialisation() -> Iterator[None]:
    """Networks built inside have arbitrary weights, in no time, without a draw from torch's generator."""
    global _loaded_later
    before, _loaded_later = _loaded_later, True
    try:
        with _NoDraws():
            yield
    finally:
        _loaded_later = before
