"""The meta-gradient against finite differences of the real training process, and against a plain unrolled graph."""

import math
from dataclasses import replace

import pytest
import torch
from torch.func import functional_call

from agents.agent import Agent
from agents.layers import Conv2d, ReLU
from agents.tasks import TASKS, TaskInputs
from envs.stream import EnvSpec
from learners.losses import impala_loss
from learners.meta_gradient import InnerStep, MetaGradient
from learners.objective import Network, Objective
from learners.optimiser import Adam, OptimiserState, RMSProp, global_norm
from tests.agents.test_agent import random_batch

SPEC = EnvSpec(num_actions=3, frame_shape=(1, 20, 20), stack=4, frames_per_step=4)
LEARNING_RATE = 5e-4
UPDATES_BEFORE = 3
"""Updates that Adam made before the window: its bias corrections differ from one update to the next."""


class Laboratory:
    """A small double-precision network, a few batches, and training written out in the plainest way."""

    def __init__(self, make_config, task="reverse_gvf", interval=2, clip_norm=1e6, lstm_size=0, optimiser="rmsprop", **options):
        self.config = make_config(batch_size=2, unroll=6, clip_norm=clip_norm, rmsprop_eps=1e-3).learner
        self.stops = options.pop("stop_main_gradient", False)
        torch.manual_seed(0)
        agent = Agent(SPEC, "shallow", lstm_size)
        tasks = TASKS[task].Config(num_questions=3, answer_weight=1.0, **options)
        self.task = TASKS[task].build(tasks, SPEC, agent.torso.num_features)
        self.network = Network(agent, self.task).double()
        for name, parameter in self.network.named_parameters():
            if "torso" not in name:
                torch.nn.init.normal_(parameter, std=0.1)  # Heads that are far from zero hide no term.
        self.objective = Objective(self.config, self.network, self.stops)
        self.clip_norm = clip_norm
        self.interval = interval
        self.batches = []
        for seed in range(interval + 1):
            valid = torch.ones(6, 2, dtype=torch.bool)
            valid[seed % 5 + 1, seed % 2] = False  # An episode border in every batch.
            batch = random_batch(SPEC, lstm_size=lstm_size, seed=seed, valid=valid)
            batch.first[2, 1 - seed % 2] = True  # And a lost life.
            batch.discount[1, 1 - seed % 2] = 0.0
            self.batches.append(replace(batch, core_state=batch.core_state.double()))
        self.start = [p.detach().clone() for p in self.objective.theta]
        moments = {"moment": [torch.full_like(p, 1e-2) for p in self.start]}
        if optimiser == "adam":
            moments["first_moment"] = [torch.full_like(p, 1e-2) for p in self.start]
            self.optimiser = Adam(0.8, 0.95, 1e-3, clip_norm)
            self.state = OptimiserState(moments, torch.tensor(UPDATES_BEFORE))
        else:
            self.optimiser = RMSProp(0.9, 1e-3, clip_norm)
            self.state = OptimiserState(moments)

    def outputs(self, theta, batch):
        return functional_call(self.network, dict(zip(self.objective.names, theta, strict=True)), (batch,))

    def main_loss(self, live, fixed, batch):
        loss = impala_loss(live.logits, live.value, fixed.logits, fixed.value, batch, self.config)
        c = self.config
        return ((loss.policy + c.value_cost * loss.value - c.entropy_cost * loss.entropy) * batch.valid).sum()

    def gradient(self, theta, batch, create_graph=False):
        """Of L_RL + L_aux, with targets from a network of its own that the first derivative does not see."""
        alias = [p.view_as(p) for p in theta]
        unroll, prediction = self.outputs(alias, batch)
        fixed, fixed_prediction = self.outputs(theta, batch)
        main = self.main_loss(unroll, fixed, batch)
        questions = self.task.ask(unroll.pixels, batch)
        auxiliary = self.task.loss(prediction, fixed_prediction, TaskInputs(batch, batch.observations(), questions))
        side = self.task.weight * (auxiliary.loss * auxiliary.mask).sum()
        find = lambda loss: torch.autograd.grad(  # noqa: E731
            loss, alias, create_graph=create_graph, retain_graph=True, materialize_grads=True
        )
        mains, sides = find(main), find(side)
        gradients = []
        for name, m, s in zip(self.objective.names, mains, sides, strict=True):
            gradients.append(s if self.stops and name.startswith("agent.torso") else m + s)
        return gradients

    def update(self, theta, moments, gradients, number):
        norm = torch.sqrt(sum((g**2).sum() for g in gradients))
        scale = self.clip_norm / norm if norm > self.clip_norm else 1.0
        clipped = [scale * g for g in gradients]
        if "first_moment" in moments:
            first = [0.8 * m + 0.2 * g for m, g in zip(moments["first_moment"], clipped, strict=True)]
            second = [0.95 * v + 0.05 * g**2 for v, g in zip(moments["moment"], clipped, strict=True)]
            n = UPDATES_BEFORE + number
            steps = [(m / (1 - 0.8**n)) / (v / (1 - 0.95**n) + 1e-3).sqrt() for m, v in zip(first, second, strict=True)]
            moments = {"first_moment": first, "moment": second}
        else:
            second = [0.9 * m + 0.1 * g**2 for m, g in zip(moments["moment"], clipped, strict=True)]
            steps = [g / (m + 1e-3).sqrt() for g, m in zip(clipped, second, strict=True)]
            moments = {"moment": second}
        return [p - LEARNING_RATE * s for p, s in zip(theta, steps, strict=True)], moments

    def train(self, create_graph=False):
        """theta_0 ... theta_K."""
        thetas, moments = [[p.detach().requires_grad_() for p in self.start]], self.state.moments
        for number, batch in enumerate(self.batches[:-1], start=1):
            gradients = self.gradient(thetas[-1], batch, create_graph)
            theta, moments = self.update(thetas[-1], moments, gradients, number)
            if not create_graph:
                theta = [p.detach().requires_grad_() for p in theta]
                moments = {kind: [m.detach() for m in values] for kind, values in moments.items()}
            thetas.append(theta)
        return thetas

    def judge(self, thetas, fixed_thetas):
        """The sum of L_RL over the window; the targets of its terms come from `fixed_thetas`."""
        total = 0.0
        for theta, fixed, batch in zip(thetas, fixed_thetas, self.batches, strict=True):
            with torch.no_grad():
                target = self.outputs(fixed, batch)[0]
            total = total + self.main_loss(self.outputs(theta, batch)[0], target, batch)
        return total

    def meta_gradient(self, exact=True, kept=True):
        """Hindcast's own."""
        meta = MetaGradient(self.objective, self.task, self.optimiser, self.interval, math.inf)
        theta, state = [p.clone().requires_grad_() for p in self.start], self.state.clone()
        norms = []
        for batch in self.batches[:-1]:
            traced = meta.trace(self.objective.evaluate_main(theta, batch, differentiable=kept))
            loss = traced.evaluation.main.loss.detach()
            gradient = [g.detach() for g in traced.evaluation.gradients]
            meta.steps.append(InnerStep(theta, state.clone(), LEARNING_RATE, batch, loss, gradient, traced if kept else None))
            norms.append(global_norm(traced.evaluation.gradients))
            theta = [p.detach().clone() for p in theta]
            self.optimiser.step(theta, gradient, state, LEARNING_RATE, norms[-1])
            theta = [p.requires_grad_() for p in theta]
        self.norms = norms
        last = self.objective.evaluate_main(theta, self.batches[-1], differentiable=False).gradient()
        return meta.backpropagate(last, exact)


def relative_error(found, expected):
    flat = lambda tensors: torch.cat([t.flatten() for t in tensors])  # noqa: E731
    return ((flat(found) - flat(expected)).norm() / flat(expected).norm()).item()


def unrolled(laboratory):
    thetas = laboratory.train(create_graph=True)
    fixed = [[p.detach() for p in theta] for theta in thetas]
    return torch.autograd.grad(laboratory.judge(thetas, fixed), list(laboratory.task.questions.parameters()))


CASES = [
    {"task": "gvf", "interval": 1},
    {"task": "gvf", "interval": 5, "clip_norm": 0.5},
    {"task": "reverse_gvf", "interval": 1, "clip_norm": 0.5},
    {"task": "reverse_gvf", "interval": 2},
    {"task": "reverse_gvf", "interval": 2, "clip_norm": 0.5},
    {"task": "reverse_gvf", "interval": 5},
    {"task": "reverse_gvf", "interval": 5, "clip_norm": 0.5, "question_input": "future", "scale_cumulants": False},
    {"task": "reverse_gvf", "interval": 2, "stop_main_gradient": True},
    {"task": "gvf", "interval": 2, "lstm_size": 4},
    *({"optimiser": "adam", "interval": k, **clip} for k in (1, 2, 5) for clip in ({}, {"clip_norm": 0.5})),
    {"optimiser": "adam", "task": "gvf", "interval": 2, "lstm_size": 4},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_meta_gradient_equals_a_plain_unrolled_graph(make_config, case):
    laboratory = Laboratory(make_config, **case)
    found = laboratory.meta_gradient()
    clip = case.get("clip_norm", 1e6)
    assert all((norm > clip) == (clip < 1) for norm in laboratory.norms)
    assert global_norm(found) > 0
    assert relative_error(found, unrolled(laboratory)) < 1e-9


@pytest.mark.parametrize("case", CASES, ids=str)
def test_meta_gradient_equals_finite_differences_of_training(make_config, case):
    """Questions are moved a little, the updates are really made, and the judge's verdict is compared."""
    laboratory = Laboratory(make_config, **case)
    found = laboratory.meta_gradient()
    fixed = laboratory.train()
    phi = list(laboratory.task.questions.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        random = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in phi]
        # Half at random, half along the gradient, so that the derivative is large enough to be compared.
        ratio = global_norm(random) / global_norm(found)
        direction = [r + ratio * g for r, g in zip(random, found, strict=True)]
        step = 1e-8 / global_norm(direction)
        verdicts = []
        for sign in (1, -1):
            with torch.no_grad():
                for p, d in zip(phi, direction, strict=True):
                    p += sign * step * d
            verdicts.append(laboratory.judge(laboratory.train(), fixed).item())
            with torch.no_grad():
                for p, d in zip(phi, direction, strict=True):
                    p -= sign * step * d
        slope = (verdicts[0] - verdicts[1]) / (2 * step.item())
        expected = sum((g * d).sum() for g, d in zip(found, direction, strict=True)).item()
        assert slope == pytest.approx(expected, rel=1e-4)  # The step is so small that rounding shows, on some processors more.


def test_recomputed_graphs_give_the_same_bits_as_kept_ones(make_config):
    laboratory = Laboratory(make_config, interval=3)
    for kept, recomputed in zip(laboratory.meta_gradient(), laboratory.meta_gradient(kept=False), strict=True):
        assert torch.equal(kept, recomputed)


def test_first_order_leaves_out_the_hessian_and_nothing_else(make_config):
    """With one update there is no carry, so both forms agree; with two they differ, but point the same way."""
    alone = Laboratory(make_config, interval=1)
    assert relative_error(alone.meta_gradient(exact=False), alone.meta_gradient()) < 1e-12
    longer = Laboratory(make_config, interval=2)
    first, exact = longer.meta_gradient(exact=False), longer.meta_gradient()
    cosine = sum((a * b).sum() for a, b in zip(first, exact, strict=True)) / (global_norm(first) * global_norm(exact))
    assert relative_error(first, exact) > 1e-4
    assert cosine > 0.5


@pytest.mark.parametrize("clip_norm", [0.1, 1e6])
def test_rmsprop_adjoint_equals_automatic_differentiation(clip_norm):
    generator = torch.Generator().manual_seed(0)
    draw = lambda: [torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((3, 2), (4,))]  # noqa: E731
    gradients, moments, theta_bar, moment_bar = draw(), [m.abs() for m in draw()], draw(), draw()
    g, m = ([x.clone().requires_grad_() for x in group] for group in (gradients, moments))
    norm = torch.sqrt(sum((x**2).sum() for x in g))
    clipped = [x * clip_norm / norm if norm > clip_norm else x for x in g]
    after = [0.9 * x + 0.1 * y**2 for x, y in zip(m, clipped, strict=True)]
    moved = [-0.01 * y / (x + 1e-3).sqrt() for x, y in zip(after, clipped, strict=True)]
    expected = torch.autograd.grad([*moved, *after], [*g, *m], [*theta_bar, *moment_bar])
    state = OptimiserState({"moment": moments})
    found = RMSProp(0.9, 1e-3, clip_norm).adjoint(gradients, state, 0.01, theta_bar, {"moment": moment_bar})
    for mine, theirs in zip([*found[0], *found[1]["moment"]], expected, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("updates", [0, 7])
@pytest.mark.parametrize("clip_norm", [0.1, 1e6])
def test_adam_adjoint_equals_automatic_differentiation(clip_norm, updates):
    generator = torch.Generator().manual_seed(0)
    draw = lambda: [torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((3, 2), (4,))]  # noqa: E731
    gradients, first, theta_bar, first_bar, second_bar = draw(), draw(), draw(), draw(), draw()
    second = [m.abs() for m in draw()]
    g, m, v = ([x.clone().requires_grad_() for x in group] for group in (gradients, first, second))
    norm = torch.sqrt(sum((x**2).sum() for x in g))
    clipped = [x * clip_norm / norm if norm > clip_norm else x for x in g]
    m_after = [0.8 * x + 0.2 * y for x, y in zip(m, clipped, strict=True)]
    v_after = [0.9 * x + 0.1 * y**2 for x, y in zip(v, clipped, strict=True)]
    n = updates + 1
    moved = [-0.01 * x / (1 - 0.8**n) / (y / (1 - 0.9**n) + 1e-3).sqrt() for x, y in zip(m_after, v_after, strict=True)]
    expected = torch.autograd.grad([*moved, *m_after, *v_after], [*g, *m, *v], [*theta_bar, *first_bar, *second_bar])
    state = OptimiserState({"first_moment": first, "moment": second}, torch.tensor(updates))
    moments_bar = {"first_moment": first_bar, "moment": second_bar}
    found = Adam(0.8, 0.9, 1e-3, clip_norm).adjoint(gradients, state, 0.01, theta_bar, moments_bar)
    for mine, theirs in zip([*found[0], *found[1]["first_moment"], *found[1]["moment"]], expected, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-10, atol=1e-14)
    assert state.updates == updates


def test_adam_meta_gradient_is_finite_where_a_parameter_never_had_a_gradient():
    """With epsilon outside the root, the derivative of the root would be infinite there."""
    adam, zeros = Adam(0.9, 0.999, 1e-4, 40.0), [torch.zeros(2)]
    state, bar = adam.init(zeros), [torch.ones(2)]
    found, _ = adam.adjoint(zeros, state, 1.0, bar, {"first_moment": zeros, "moment": zeros})
    assert found[0].tolist() == pytest.approx([-100.0, -100.0])  # -1 / sqrt(1e-4): the bias correction cancels 1 - b1.


def test_layers_agree_with_pytorchs_to_the_second_derivative():
    torch.manual_seed(0)
    layer = Conv2d(3, 4, 3, stride=2, padding=1).double()
    rectify = ReLU()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))
    inputs = (x, layer.weight, layer.bias)
    mine = lambda x, w, b: rectify(functional_call(layer, {"weight": w, "bias": b}, (x,))) ** 2  # noqa: E731
    theirs = lambda x, w, b: torch.conv2d(x, w, b, 2, 1).relu() ** 2  # noqa: E731
    weights = torch.randn_like(mine(*inputs))

    def second(function):
        first = torch.autograd.grad(function(*inputs), inputs, weights, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), inputs)

    for a, b in zip(second(mine), second(theirs), strict=True):
        assert torch.allclose(a, b)
