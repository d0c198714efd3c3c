"""Convolution and ReLU with fast second derivatives, for the meta-gradient.

PyTorch's double backward of a convolution swaps batch and channels, for which there is no fast kernel. The convolution, its
input gradient and its weight gradient are partial derivatives of one trilinear form, so the derivatives of each are the other
two: here the double backward uses the kernels of the first backward. PyTorch's double backward of ReLU returns a tensor of
zeros; this one returns None. Without gradients, as in actors, the layers call the plain kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

Geometry = tuple[tuple[int, ...], tuple[int, ...]]
"""Stride and padding of a convolution."""
PIXEL_SCALE = 255 / 4
"""Divisor of pixels: a quarter of the range of a byte. Preprocessed images have small amplitudes; divided by 255, the value
is learnt half as fast (docs/notes/learning.md)."""


def _gradients(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, wanted: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    """Gradients of the input and of the weight; None for those that are not wanted."""
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
    """Gradient of x: linear in the gradient of y and in w; `like` has the shape of x."""

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
    """Gradient of w: linear in x and in the gradient of y; `like` has the shape of w."""

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


class _ReLU(Function):
    """y = max(x, 0)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clamp_min(0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return _ReLUGradient.apply(grad, y)


class _ReLUGradient(Function):
    """Gradient of x: the gradient of y where y > 0. Its derivative with respect to y is 0 almost everywhere."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return torch.ops.aten.threshold_backward(grad, y, 0)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return _ReLUGradient.apply(u, y), None


def _convolve(layer: nn.Conv2d, x: Tensor, weight: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return torch.conv2d(x, weight, layer.bias, layer.stride, layer.padding)
    x, weight, bias = _autocast(x, weight, layer.bias)
    return _Convolution.apply(x, weight, bias, (layer.stride, layer.padding))


def _autocast(*tensors: Tensor | None) -> Sequence[Any]:
    """The tensors in the type of autocast, where it is on: inside a Function it would cast what the backward pass does not."""
    device = next(tensor for tensor in tensors if tensor is not None).device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [None if tensor is None else tensor.to(dtype) for tensor in tensors]


class ReLU(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        return _ReLU.apply(input) if torch.is_grad_enabled() else torch.relu(input)


class Conv2d(nn.Conv2d):
    """nn.Conv2d without dilation, groups and padding by name."""

    def forward(self, input: Tensor) -> Tensor:
        return _convolve(self, input, self.weight)


class PixelConv2d(nn.Conv2d):
    """Convolution of pixels / PIXEL_SCALE; the few weights are divided instead of the many pixels."""

    def forward(self, input: Tensor) -> Tensor:
        return _convolve(self, input, self.weight / PIXEL_SCALE)


class Linear(nn.Linear):
    """nn.Linear; in inference mode it computes the transposed product, which is faster for few, long inputs."""

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled():
            return torch.addmm(self.bias[:, None], self.weight, input.t()).t()
        return super().forward(input)
