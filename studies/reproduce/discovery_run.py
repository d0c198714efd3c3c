"""One run of the discovery study: the learning curve of an agent, and its questions before and after training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from actors.serial_pool import SerialPool
from agents.agent import Agent
from agents.tasks.question_task import QuestionTask
from configs.tasks import task_type
from configs.train import ActorConfig, AgentConfig, EnvConfig, LearnerConfig, RunConfig, TrainConfig
from envs.grid_games import GRIDS
from learners.learner import Learner
from studies.reproduce.exact_answers import exact_answers

AGENTS = (
    "reverse_gvf",
    "gvf",
    "random_reverse_gvf",
    "random_gvf",
    "reward_prediction",
    "pixel_control",
    "untrained",
    "impala",
)
"""All but the last stop the main task's gradient at the torso. The torso of `untrained` has no loss at all; `impala` is
trained end to end and is the ceiling."""

MAPPED_QUESTIONS = 4


def agent_config(game: str, agent: str, seed: int, frames: int, settings: dict[str, Any]) -> TrainConfig:
    """The config of an agent; `settings` are fields of LearnerConfig and of tasks' Configs by name."""
    learner = {name: value for name, value in settings.items() if name in LearnerConfig.__dataclass_fields__}
    task = "none" if agent in ("untrained", "impala") else agent
    kind = task_type(task)
    settings = {"meta_clip_norm": 0.0} | settings  # The study was made without a clip.
    return TrainConfig(
        task=task,
        env=EnvConfig(game=game),
        agent=AgentConfig(torso="shallow"),
        learner=LearnerConfig(device="cpu", stop_main_gradient=agent != "impala", **learner),
        auxiliary=kind.config(**{name: value for name, value in settings.items() if kind.has(name)}),
        actors=ActorConfig(pool="serial"),
        run=RunConfig(frames=frames, seed=seed),
    )


def run_agent(config: TrainConfig, points: int, maps: bool = False) -> dict[str, Any]:
    """Train an agent; return its mean score in each of `points` intervals of frames and, with `maps`, its questions."""
    torch.set_num_threads(1)
    pool = SerialPool(config)
    learner = Learner(config, pool.spec)
    initial_torso = torso_weights(learner.agent)
    pool.publish(learner.weights(), learner.version)
    scores: list[list[float]] = [[] for _ in range(points)]
    before = None
    while learner.frame < config.run.frames:
        batch = pool.next_batch()
        learner.step(batch)
        if maps and before is None:  # The first batch calibrates the questions.
            before = question_maps(learner, config.env.game)
        pool.publish(learner.weights(), learner.version)
        interval = min(points - 1, (learner.frame - 1) * points // config.run.frames)
        scores[interval] += [episode.score for episode in pool.report().episodes]
    pool.close()
    moved = float((torso_weights(learner.agent) - initial_torso).norm() / initial_torso.norm())
    found = {"scores": _filled([float(np.mean(s)) if s else None for s in scores]), "torso_moved": moved}
    if before is not None:
        found["questions"] = mapped_questions(before, question_maps(learner, config.env.game), config.env.game)
    return found


def _filled(curve: list[float | None]) -> list[float]:
    """The curve without None: intervals in which no game ended repeat the previous one, the first of them the next one."""
    known = [value for value in curve if value is not None]
    filled, last = [], known[0] if known else float("nan")
    for value in curve:
        last = last if value is None else value
        filled.append(last)
    return filled


def torso_weights(agent: Agent) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in agent.torso.parameters()]).clone()


Maps = dict[str, torch.Tensor]


@torch.inference_mode()
def question_maps(learner: Learner, game: str) -> Maps:
    """Cumulants, discounts and answers [S, d] in every state of the game, and the policy [S, A]."""
    task, agent = learner.task, learner.agent
    assert isinstance(task, QuestionTask)
    pixels = agent.preprocess(torch.from_numpy(GRIDS[game]().images))
    cumulant, discount = task.questions(pixels)
    features = agent.torso(pixels)
    policy = agent.policy(features).double().softmax(-1)
    return {"cumulant": cumulant, "discount": discount, "answer": task.answers(features), "policy": policy}


def mapped_questions(before: Maps, after: Maps, game: str) -> dict[str, Any]:
    """Maps of the questions whose answers vary most between states after training, before and after training.

    The maps after training include the exact GVF and Reverse GVF answers under the learnt policy.
    """
    chosen = after["answer"].var(0).argsort(descending=True)[:MAPPED_QUESTIONS]
    maps: dict[str, dict[str, Any]] = {
        when: {name: found[name][:, chosen].double().numpy() for name in ("cumulant", "discount", "answer")}
        for when, found in (("before", before), ("after", after))
    }
    asked = zip(maps["after"]["cumulant"].T, maps["after"]["discount"].T, strict=True)
    both = [exact_answers(GRIDS[game](), after["policy"].numpy(), cumulant, discount) for cumulant, discount in asked]
    maps["after"]["follows"], maps["after"]["came_before"] = (np.stack(answers, -1) for answers in zip(*both, strict=True))
    rounded = {when: {name: np.round(v, 4).tolist() for name, v in found.items()} for when, found in maps.items()}
    return {"chosen": chosen.tolist(), **rounded}
