"""A device for tests that computes on the CPU and refuses to mix with it, as a GPU does.

PyTorch's key for other backends (PrivateUse1) is given to Python. A tensor of the device wraps one of the CPU; every operator
is run on what is wrapped, after its arguments have been checked. The rules are CUDA's: a tensor of the CPU is refused unless it
is a single number that is only read, and only copies go from one device to the other.
"""

import functools
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "pretend"
aten = torch.ops.aten


def lstm_cell(input_gates, hidden_gates, cell, input_bias, hidden_bias):
    """New hidden state, new cell state and activated gates, from the gates of input and hidden state [N, 4 R]."""
    i, f, g, o = (input_gates + hidden_gates + input_bias + hidden_bias).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new_cell = f * cell + i * g
    return o * new_cell.tanh(), new_cell, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(hidden_gradient, cell_gradient, cell, new_cell, gates, has_bias):
    """Gradients of the gates, of the cell state and of a bias."""
    i, f, g, o = gates.chunk(4, 1)
    tanh = new_cell.tanh()
    hidden_gradient = torch.zeros_like(tanh) if hidden_gradient is None else hidden_gradient
    total = hidden_gradient * o * (1 - tanh**2) + (0 if cell_gradient is None else cell_gradient)
    gradient = torch.cat(
        [
            total * g * i * (1 - i),
            total * cell * f * (1 - f),
            total * i * (1 - g**2),
            hidden_gradient * tanh * o * (1 - o),
        ],
        1,
    )
    return gradient, total * f, gradient.sum(0)


FUSED = {
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
}
"""Kernels that PyTorch calls on devices and does not have for the CPU."""


class DeviceMixError(RuntimeError):
    """An operator was given tensors of both devices."""


class PretendTensor(torch.Tensor):
    """`held` is the tensor of the CPU."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"{type(self).__name__}({self.held})"

    def __format__(self, spec):
        return format(self.item(), spec)  # PyTorch's is for its own class alone.

    def tolist(self):
        return self.held.tolist()  # PyTorch has none for subclasses.

    def record_stream(self, stream):
        stream.recorded.append(self)

    def untyped_storage(self):
        return self.held.untyped_storage()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        destination = kwargs.get("device")
        if function is aten._to_copy.default and destination is not None and torch.device(destination).type == "cpu":
            return function(args[0].held, **kwargs)
        if function is aten.copy_.default:
            return _copy_from(args[1], args[0], *args[2:])
        if function is aten._foreach_copy_.default:
            for target, source in zip(*args, strict=True):
                _copy_from(source, target)
            return None
        check(function, args, kwargs)
        if destination is not None:
            if torch.device(destination).type != NAME:
                raise DeviceMixError(f"{function} makes a tensor on {destination} from one on {NAME}")
            kwargs["device"] = "cpu"
        held_args, held_kwargs = tree_map_only(cls, lambda tensor: tensor.held, (args, kwargs))
        result = tree_map_only(torch.Tensor, cls, FUSED.get(function, function)(*held_args, **held_kwargs))
        return return_and_correct_aliasing(function, args, kwargs, result)


def held(tensor):
    """What is to be computed with on the CPU."""
    return tensor.held if isinstance(tensor, PretendTensor) else tensor


def check(function, args, kwargs):
    """Raise DeviceMixError for a tensor of the CPU that is not a single number, is written to, or is one of a list."""
    schema = function._schema
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    for argument in schema.arguments:
        value = given.get(argument.name)
        written = argument.alias_info is not None and argument.alias_info.is_write
        for tensor in tree_leaves(value):
            elsewhere = isinstance(tensor, torch.Tensor) and not isinstance(tensor, PretendTensor)
            if elsewhere and (tensor.dim() or written or isinstance(value, list | tuple)):
                raise DeviceMixError(f"{function}: {argument.name} {list(tensor.shape)} is on the CPU, others are not")


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return PretendTensor(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return PretendTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source, target, non_blocking=False):
    """A copy that need not block waits on its stream until that is waited for, as late as a device may make it."""
    copy = functools.partial(held(target).copy_, held(source))
    if non_blocking and _streams[-1] is not DEFAULT_STREAM:
        held(target).zero_()
        _streams[-1].work.append(copy)
    else:
        copy()
    return target


class Stream:
    """Work that is done when an event after it is waited for."""

    def __init__(self, device=None):
        self.work, self.recorded = [], []

    def record_event(self):
        return self, len(self.work)

    def wait_event(self, event):
        stream, count = event
        for position in range(count):
            stream.work[position]()
            stream.work[position] = lambda: None


DEFAULT_STREAM = Stream()
_streams = [DEFAULT_STREAM]
"""The last is current."""


def _autocast_linear(x, weight, bias=None):
    """The one layer that relies on autocast."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    dtype = torch.get_autocast_dtype(NAME)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        return torch.nn.functional.linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


class Backend(_DummyBackendModule):
    Stream = Stream

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    def current_stream(self, device=None):
        return _streams[-1]

    @contextmanager
    def stream(self, stream):
        _streams.append(stream)
        yield
        _streams.pop()


_setup_privateuseone_for_python_backend(NAME, Backend())
_library = torch.library.Library("aten", "IMPL")
_library.impl("empty.memory_format", _empty, "PrivateUse1")
_library.impl("empty_strided", _empty_strided, "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")
_library.impl("linear", _autocast_linear, "AutocastPrivateUse1")
_fallbacks = torch.library.Library("_", "IMPL")
_fallbacks.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
DEVICE = torch.device(NAME, 0)
