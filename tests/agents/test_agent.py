import numpy as np
import pytest
import torch

from agents.agent import Agent, flat_weights, use_flat_weights
from agents.batch import Batch
from agents.torsos import TORSOS, Torso
from envs.frame_stack import FrameStack
from envs.stream import EnvSpec

SPEC = EnvSpec(num_actions=3, frame_shape=(1, 40, 40), stack=4, frames_per_step=4)


def random_batch(spec=SPEC, time=6, batch=2, lstm_size=0, seed=0, valid=None):
    generator = torch.Generator().manual_seed(seed)
    pixels = lambda *shape: torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)  # noqa: E731
    valid = torch.ones(time, batch, dtype=torch.bool) if valid is None else valid
    first = torch.cat([torch.zeros(1, batch, dtype=torch.bool), ~valid])
    return Batch(
        stack=pixels(batch, *spec.observation_shape),
        frames=pixels(time, batch, *spec.frame_shape),
        first=first,
        action=torch.randint(0, spec.num_actions, (time, batch), generator=generator),
        reward=torch.randn(time, batch, generator=generator),
        discount=valid.float(),
        valid=valid,
        logits=torch.randn(time, batch, spec.num_actions, generator=generator),
        core_state=torch.randn(batch, 2 * lstm_size, generator=generator),
        version=torch.zeros(batch, dtype=torch.long),
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_observations_rebuilt_from_frames_equal_the_actors_frame_stacks(channels):
    """Games that end at the first, last and neighbouring steps, with frames of one or several channels."""
    spec = EnvSpec(3, (channels, 40, 40), stack=4, frames_per_step=1)
    valid = torch.ones(6, 3, dtype=torch.bool)
    valid[0, 0] = valid[2, 1] = valid[4, 1] = valid[5, 2] = False
    batch = random_batch(spec, batch=3, valid=valid)
    stack = FrameStack(spec, 3)
    stack.array[:] = batch.stack.numpy()
    expected = [stack.array.copy()]
    for t in range(6):
        expected.append(stack.push(batch.frames[t].numpy(), ~valid[t].numpy()).copy())
    assert np.array_equal(batch.observations().numpy(), np.stack(expected))


def test_observations_are_channels_last_in_memory():
    observations = random_batch().observations().flatten(0, 1)
    assert observations.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("lstm_size", [0, 8])
def test_unrolling_equals_acting_step_by_step(lstm_size):
    valid = torch.ones(6, 2, dtype=torch.bool)
    valid[2, 0] = False
    batch = random_batch(lstm_size=lstm_size, valid=valid)
    agent = Agent(SPEC, "shallow", lstm_size)
    unroll = agent.unroll(batch)
    state = batch.core_state
    for t, observation in enumerate(batch.observations()):
        logits, state = agent.act(observation, batch.first[t], state)
        assert torch.allclose(logits, unroll.logits[t], atol=1e-5)
    assert unroll.value.shape == (7, 2)
    assert unroll.features.shape == (7, 2, 256)


def test_the_first_observation_of_an_episode_resets_the_recurrent_state():
    agent = Agent(SPEC, "shallow", lstm_size=8)
    observation = random_batch().observations()[0]
    state = torch.randn(2, 16)
    reset, _ = agent.act(observation, torch.tensor([True, False]), state)
    fresh, _ = agent.act(observation, torch.tensor([False, False]), torch.zeros(2, 16))
    assert torch.equal(reset[0], fresh[0])
    assert not torch.equal(reset[1], fresh[1])


@pytest.mark.parametrize("name", TORSOS)
@pytest.mark.parametrize("size", [40, 84])
def test_features_differ_between_observations(name, size):
    torch.manual_seed(0)
    torso = Torso(name, (4, size, size))
    features = torso(torch.randint(-128, 128, (16, 4, size, size)).float())
    assert features.shape == (16, torso.num_features)
    assert features.std(0).mean() > 0.01


@pytest.mark.parametrize("name", TORSOS)
@pytest.mark.parametrize(("height", "width"), [(40, 40), (37, 50), (44, 44), (84, 84)])
def test_features_depend_on_every_pixel_of_the_last_row_and_column(name, height, width):
    torso = Torso(name, (1, height, width))
    for parameter in torso.parameters():
        parameter.data.abs_()
    last_row, last_column = torch.zeros(width, 1, height, width), torch.zeros(height, 1, height, width)
    last_row[range(width), 0, -1, range(width)] = 100.0
    last_column[range(height), 0, range(height), -1] = 100.0
    assert (torso(torch.cat([last_row, last_column])) > torso(torch.zeros(1, 1, height, width))).any(-1).all()


@pytest.mark.parametrize("name", TORSOS)
def test_torsos_give_the_same_features_in_inference_mode(name):
    """Actors use faster kernels, which differ in rounding only."""
    torso, pixels = Torso(name, (4, 40, 40)), torch.randn(3, 4, 40, 40)
    with torch.inference_mode():
        acting = torso(pixels)
    assert torch.allclose(acting, torso(pixels), rtol=1e-5, atol=1e-6)


def test_preprocessing_removes_the_background_and_the_mean_brightness():
    """Of a static image with one changed pixel only that pixel is left; a change of brightness alone leaves nothing."""
    spec = EnvSpec(3, (1, 16, 16), stack=2, frames_per_step=1)
    agent = Agent(spec, "deep")
    background = torch.randint(0, 200, (1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    agent.set_background(background.expand(3, 2, 1, 16, 16))
    observation = background.repeat(2, 1, 1)
    assert agent.preprocess(observation).abs().max() < 1e-4
    assert agent.preprocess(observation + 50).abs().max() < 1e-4
    observation[1, 3, 5] += 40  # Not among the rows and columns that the mean brightness is estimated from.
    pixels = agent.preprocess(observation)
    assert pixels[1, 3, 5] == pytest.approx(40, abs=1e-4)
    assert (pixels.abs() > 1e-4).sum() == 1


def test_the_background_is_the_mean_frame_and_preprocessing_subtracts_it():
    spec = EnvSpec(3, (3, 40, 40), stack=2, frames_per_step=1)
    agent, batch = Agent(spec, "shallow"), random_batch(spec)
    agent.set_background(batch.frames)
    expected = batch.frames.double().flatten(0, 1).mean(0)
    assert torch.allclose(agent.background.double(), expected, atol=1e-3)
    observations = batch.observations()
    shifted = observations.double() - expected.repeat(2, 1, 1)
    expected_pixels = shifted - shifted[..., ::8, ::8].mean((-3, -2, -1), keepdim=True)
    assert torch.allclose(agent.preprocess(observations).double(), expected_pixels, atol=1e-3)


def test_torsos_have_the_published_shapes():
    def shapes(name):
        return [tuple(p.shape) for p in Torso(name, (4, 84, 84)).parameters() if p.ndim > 1]

    assert shapes("shallow") == [(16, 4, 8, 8), (32, 16, 4, 4), (256, 32 * 9 * 9)]
    assert shapes("nature") == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 64 * 7 * 7)]
    assert len(shapes("deep")) == 3 * 5 + 1
    assert shapes("deep")[-1] == (256, 32 * 11 * 11)


def test_the_initial_policy_is_nearly_uniform():
    agent = Agent(SPEC, "nature")
    probabilities = agent.unroll(random_batch()).logits.softmax(-1)
    assert (probabilities - 1 / 3).abs().max() < 0.02


def test_flat_weights_round_trip():
    source, target = Agent(SPEC, "shallow", 8), Agent(SPEC, "shallow", 8)
    source.set_background(random_batch().frames)
    use_flat_weights(target, flat_weights(source))
    for name, value in target.state_dict().items():
        assert torch.equal(value, source.state_dict()[name]), name
    before = flat_weights(other := Agent(SPEC, "shallow"))
    with pytest.raises(ValueError, match="weights were given"):
        use_flat_weights(other, flat_weights(source))
    assert torch.equal(flat_weights(other), before)


def test_flat_weights_are_not_copied_and_those_of_the_source_are_not_touched():
    source, target = Agent(SPEC, "shallow"), Agent(SPEC, "shallow")
    flat = flat_weights(source)
    use_flat_weights(target, flat)
    flat.zero_()
    assert not any(value.any() for value in target.state_dict().values())
    assert flat_weights(source).any()
