"""The actor-critic network: torso, optional LSTM core, policy and value heads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from agents.batch import Batch
from agents.initialisation import HEAD_GAIN, orthogonal
from agents.ranks import ONE_RANK, Ranks
from agents.torsos import make_torso
from envs.stream import EnvSpec


class Unroll(NamedTuple):
    """Outputs of the network on a batch of unrolls; leading axes [T + 1, B]."""

    observations: Tensor
    """[T + 1, B, S * C, H, W] uint8"""
    pixels: Tensor
    """[T + 1, B, S * C, H, W] float, the observations after `Agent.preprocess`: the input of every torso."""
    features: Tensor
    """[T + 1, B, F], the output of the torso and the input of the auxiliary heads."""
    logits: Tensor
    """[T + 1, B, A]"""
    value: Tensor
    """[T + 1, B]"""


class Agent(nn.Module):
    """Torso, policy and value heads, with an LSTM between them if `lstm_size` > 0."""

    background: Tensor
    """[C, H, W], the mean frame of the first batch; 0 before the first update."""

    def __init__(self, spec: EnvSpec, torso: str, lstm_size: int = 0):
        super().__init__()
        self._stack = spec.stack
        self.register_buffer("background", torch.zeros(spec.frame_shape))
        self.torso = make_torso(torso, spec.observation_shape)
        self.lstm_size = lstm_size
        self.torso_in_bf16 = False
        """Whether `unroll` computes the torso in bfloat16; its input, its output and the parameters are float32."""
        self.core = nn.LSTMCell(self.torso.num_features, lstm_size) if lstm_size else None
        head_inputs = lstm_size or self.torso.num_features
        self.policy = nn.Linear(head_inputs, spec.num_actions)
        self.value = nn.Linear(head_inputs, 1)
        orthogonal(self.policy, HEAD_GAIN)
        orthogonal(self.value, HEAD_GAIN)
        if self.core is not None:
            orthogonal(self.core, 1.0)

    def initial_state(self, batch_size: int) -> Tensor:
        """Zero recurrent state [B, R]: the LSTM's hidden and cell state, concatenated; R = 0 without an LSTM."""
        return torch.zeros(batch_size, 2 * self.lstm_size)

    def set_background(self, frames: Tensor, ranks: Ranks = ONE_RANK) -> None:
        """Set `background` to the mean of the `frames` [T, B, C, H, W] of all ranks."""
        total = ranks.sum_(frames.to(self.background.dtype).sum((0, 1)))
        self.background.copy_(total / (ranks.size * frames.shape[0] * frames.shape[1]))

    def preprocess(self, observations: Tensor) -> Tensor:
        """Subtract the mean frame of the first batch, then each image's mean brightness: [..., S * C, H, W], uint8 -> float.

        Most pixels of a game are the same in every state. Left in, they dominate the activations: each update shifts all
        responses of a filter together, many filters die, and a ball of a few pixels is learnt last. The mean brightness is
        estimated from every eighth row and column.
        """
        channels_last = self.background.repeat(self._stack, 1, 1).movedim(0, -1).contiguous().movedim(-1, 0)
        pixels = observations.to(self.background.dtype).sub_(channels_last)
        return pixels.sub_(pixels[..., ::8, ::8].mean((-3, -2, -1), keepdim=True))

    def act(self, observations: Tensor, first: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [N, A] and next recurrent state [N, R] for observations [N, S * C, H, W]; `first` [N] resets the state."""
        features, state = self._recur(self.torso(self.preprocess(observations)), first, state)
        return self.policy(features), state

    def unroll(self, batch: Batch) -> Unroll:
        """Outputs for all T + 1 observations of each unroll, starting from the recurrent state of the actor."""
        observations = batch.observations()
        pixels = self.preprocess(observations)
        features = self._features(pixels.flatten(0, 1)).unflatten(0, observations.shape[:2])
        if self.core is None:
            core_features = features
        else:
            state, outputs = batch.core_state, []
            for features_t, first_t in zip(features, batch.first, strict=True):
                output, state = self._recur(features_t, first_t, state)
                outputs.append(output)
            core_features = torch.stack(outputs)
        return Unroll(observations, pixels, features, self.policy(core_features), self.value(core_features).squeeze(-1))

    def _features(self, pixels: Tensor) -> Tensor:
        if not self.torso_in_bf16:
            return self.torso(pixels)
        with torch.autocast(pixels.device.type, torch.bfloat16):
            return self.torso(pixels).to(pixels.dtype)

    def _recur(self, features: Tensor, first: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if self.core is None:
            return features, state
        hidden, cell = (state * ~first[:, None]).chunk(2, dim=-1)
        hidden, cell = self.core(features, (hidden, cell))
        return hidden, torch.cat([hidden, cell], dim=-1)


def flat_weights(module: nn.Module) -> Tensor:
    """Copy of all parameters and buffers as one vector on the CPU, in the order of the state dict."""
    return torch.cat([value.reshape(-1) for value in module.state_dict().values()]).cpu()


def use_flat_weights(module: nn.Module, flat: Tensor) -> None:
    """Make parameters and buffers of a module of the same architecture views of a vector from `flat_weights`.

    Nothing is copied: the vector must not change while the module is used, and may lie in read-only memory.
    """
    values = list(module.state_dict(keep_vars=True).values())
    sizes = [value.numel() for value in values]
    if sum(sizes) != flat.numel():
        raise ValueError(f"{flat.numel()} weights were given to a network of {sum(sizes)}; the architectures must be the same")
    for value, part in zip(values, flat.split(sizes), strict=True):
        value.data = part.view(value.shape)
