"""Convolution and rectifier whose second derivatives are as fast as their first.

PyTorch differentiates a convolution's gradient by convolutions with batch and channels exchanged, for which no fast kernel
exists. But the convolution, its input gradient and its weight gradient are the three faces of one trilinear form, so that the
derivative of each is the other two. Written so, a second derivative uses the kernels of the first. And PyTorch's rectifier
sends a tensor of zeros back for what its second derivative does not depend on; ours sends nothing. An actor, which
differentiates nothing, takes the shortest way through each layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

Geometry = tuple[tuple[int, ...], tuple[int, ...]]
"""Stride and padding."""
PIXEL_SCALE = 255 / 4
"""What counts as 1: a quarter of the range of a byte. Images come without their background, and what is left of them is small
and faint: measured by the whole range, the same updates teach a value twice as late (docs/results.md)."""


def _gradients(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, wanted: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    """Of the input and the weight; None for what is not wanted."""
    stride, padding = geometry
    x_gradient, weight_gradient, _ = torch.ops.aten.convolution_backward(
        grad, x, weight, None, stride, padding, (1, 1), False, (0, 0), 1, (*wanted, False)
    )
    return x_gradient, weight_gradient


class _Convolution(Function):
    """y = x * w + b"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.geometry = geometry
        return torch.conv2d(x, weight, bias, *geometry)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        bias_gradient = grad.sum((0, 2, 3)) if wanted[2] else None
        if not torch.is_grad_enabled():
            return *_gradients(grad, x, weight, ctx.geometry, wanted[:2]), bias_gradient, None
        return (
            _InputGradient.apply(grad, weight, x, ctx.geometry) if wanted[0] else None,
            _WeightGradient.apply(x, grad, weight, ctx.geometry) if wanted[1] else None,
            bias_gradient,
            None,
        )


class _InputGradient(Function):
    """The gradient of x, linear in the output's gradient and in w; `like` gives the shape of x."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, weight: Tensor, like: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(grad, weight)
        ctx.geometry = geometry
        return _gradients(grad, like, weight, geometry, (True, False))[0]

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        grad, weight = ctx.saved_tensors
        return (
            _Convolution.apply(u, weight, None, ctx.geometry) if ctx.needs_input_grad[0] else None,
            _WeightGradient.apply(u, grad, weight, ctx.geometry) if ctx.needs_input_grad[1] else None,
            None,
            None,
        )


class _WeightGradient(Function):
    """The gradient of w, linear in x and in the output's gradient; `like` gives the shape of w."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grad: Tensor, like: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, grad)
        ctx.geometry = geometry
        return _gradients(grad, x, like, geometry, (False, True))[1]

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, grad = ctx.saved_tensors
        u = u.contiguous(memory_format=torch.channels_last)
        return (
            _InputGradient.apply(grad, u, x, ctx.geometry) if ctx.needs_input_grad[0] else None,
            _Convolution.apply(x, u, None, ctx.geometry) if ctx.needs_input_grad[1] else None,
            None,
            None,
        )


class _Rectifier(Function):
    """y = max(x, 0)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clamp_min(0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return _Gate.apply(grad, y)


class _Gate(Function):
    """What passes where y > 0, linear in the gradient; as a function of y it is constant almost everywhere."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return torch.ops.aten.threshold_backward(grad, y, 0)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return _Gate.apply(u, y), None


def _convolve(layer: nn.Conv2d, x: Tensor, weight: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return torch.conv2d(x, weight, layer.bias, layer.stride, layer.padding)  # An actor spares itself the detour.
    return _Convolution.apply(x, weight, layer.bias, (layer.stride, layer.padding))


class ReLU(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        return _Rectifier.apply(input) if torch.is_grad_enabled() else torch.relu(input)


class Conv2d(nn.Conv2d):
    """As nn.Conv2d, without dilation, groups and padding by name."""

    def forward(self, input: Tensor) -> Tensor:
        return _convolve(self, input, self.weight)


class PixelConv2d(nn.Conv2d):
    """Over bytes, in units of `PIXEL_SCALE`: the division is done on the few weights, not on the many pixels."""

    def forward(self, input: Tensor) -> Tensor:
        return _convolve(self, input, self.weight / PIXEL_SCALE)


class Linear(nn.Linear):
    """As nn.Linear; an actor (in inference mode) multiplies the other way round, which is faster for few and long inputs."""

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled():
            return torch.addmm(self.bias[:, None], self.weight, input.t()).t()
        return super().forward(input)
