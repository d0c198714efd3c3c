"""Which agents of a report are compared, and the verdicts on them: a table for the final score, one for the area."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from configs.errors import ConfigError
from studies.report.agents import Agent, in_order
from studies.report.calibration import LEAST_TRIALS, Calibration, false_claims
from studies.report.estimates import Improvement, improvement
from studies.report.paired import Sample
from studies.report.records import Collection
from studies.report.verdicts import Row, Verdict, judge, weigh

MEASURES = {"final_score": "final score", "area": "area under the learning curve"}


@dataclass(frozen=True)
class Judged:
    """Verdicts by one measure."""

    games: dict[str, Verdict]
    overall: Verdict


@dataclass(frozen=True)
class Pair:
    """An agent of the chosen task against another one."""

    agent: str
    other: str
    improvements: dict[str, Improvement]
    """By game, where both have finished trials."""
    final_score: Judged
    area: Judged

    def judged(self, measure: str) -> Judged:
        return self.area if measure == "area" else self.final_score


def judge_pairs(collection: Collection, chosen: str) -> list[Pair]:
    """The comparisons of a report; the rows of all of them are one table for each measure."""
    agents = in_order(trial.agent for trial in collection.trials)
    shared = {pair: _shared_games(collection, *pair) for pair in compared(agents, chosen)}
    shared = {pair: games for pair, games in shared.items() if games}
    tables = {measure: _judge_table(collection, shared, measure) for measure in MEASURES}
    return [
        Pair(
            agent.label,
            other.label,
            _improvements(collection, agent, other, games),
            *(tables[m][agent, other] for m in MEASURES),
        )
        for (agent, other), games in shared.items()
    ]


def _judge_table(
    collection: Collection, shared: dict[tuple[Agent, Agent], list[str]], measure: str
) -> dict[tuple[Agent, Agent], Judged]:
    rows: dict[tuple[Agent, Agent, str | None], Row] = {}
    untested: dict[tuple[Agent, Agent], Verdict] = {}
    for (agent, other), games in shared.items():
        x, y = ([_sample(collection, game, side, measure) for game in games] for side in (agent, other))
        for game, ours, theirs in zip(games, x, y, strict=True):
            rows[agent, other, game] = Row([ours], [theirs])
        both = [index for index in range(len(games)) if x[index] and y[index]]
        together = Row([x[i] for i in both], [y[i] for i in both], over_games=True)
        if mixed := mixed_protocols(collection, [games[index] for index in both]):
            untested[agent, other] = Verdict("not pooled", mixed)
        elif len(games) == 1:
            untested[agent, other] = Verdict("not pooled", "there is one game", weigh(together).estimate)
        else:
            rows[agent, other, None] = together
    verdicts = dict(zip(rows, judge(list(rows.values())), strict=True))
    return {
        (agent, other): Judged(
            {game: verdicts[agent, other, game] for game in games},
            untested.get((agent, other)) or verdicts[agent, other, None],
        )
        for (agent, other), games in shared.items()
    }


def compared(agents: Sequence[Agent], chosen: str) -> list[tuple[Agent, Agent]]:
    """The pairs of agents that a report on a task or an agent compares; raises ConfigError if there is none of that name.

    Each agent of the task meets those of every other task that have the same settings, or all of them if none has. Where there
    is no other task the first agent meets the rest. An agent that was chosen by its label meets every other.
    """
    one = [agent for agent in agents if agent.label == chosen and agent.settings]
    ours = one or [agent for agent in agents if agent.task == chosen]
    if not ours:
        names = list(dict.fromkeys([*(agent.task for agent in agents), *(agent.label for agent in agents)]))
        near = difflib.get_close_matches(chosen, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names)}"
        raise ConfigError(f"--task {chosen} has no trial here; {hint}")
    tasks = dict.fromkeys(agent.task for agent in agents if agent.task != ours[0].task)
    if one or not tasks:
        return [(ours[0], agent) for agent in agents if agent != ours[0]]
    pairs = []
    for agent in ours:
        for task in tasks:
            group = [other for other in agents if other.task == task]
            pairs += [(agent, other) for other in [o for o in group if agent.matches(o)] or group]
    return pairs


def mixed_protocols(collection: Collection, games: Iterable[str]) -> str:
    """Why there is no number over these games, if their protocols differ; games without one go with any."""
    wanted = set(games)
    found = sorted({t.protocol for t in collection.trials if t.game_label in wanted and t.protocol is not None})
    return f"trials of different protocols ({', '.join(found)}) are not pooled" if len(found) > 1 else ""


def calibrate(collection: Collection) -> Calibration | None:
    """The first plain agent with enough finished trials, split against itself by final score; None where there is none."""
    for agent in in_order(trial.agent for trial in collection.trials if trial.task == "none"):
        games = sorted({trial.game_label for trial in collection.trials if trial.agent == agent})
        samples = [_sample(collection, game, agent, "final_score") for game in games]
        if min(map(len, samples)) >= LEAST_TRIALS and not mixed_protocols(collection, games):
            return Calibration(agent.label, games, false_claims(samples))
    return None


def _sample(collection: Collection, game: str, agent: Agent, measure: str) -> Sample:
    return collection.sample(game, agent, (lambda t: t.area) if measure == "area" else (lambda t: t.score))


def _shared_games(collection: Collection, agent: Agent, other: Agent) -> list[str]:
    ours, theirs = ({t.game_label for t in collection.trials if t.agent == side} for side in (agent, other))
    return sorted(ours & theirs)


def _improvements(collection: Collection, agent: Agent, other: Agent, games: list[str]) -> dict[str, Improvement]:
    found = {}
    for game in games:
        x, y = (np.array(list(_sample(collection, game, side, "final_score").values()), dtype=float) for side in (agent, other))
        if len(x) and len(y):
            found[game] = improvement(x, y)
    return found
