"""The comparisons of a report: which agents are compared, and the verdicts by final score and by area under the curve."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from configs.errors import ConfigError
from studies.report.agents import AgentVariant, sort_agents
from studies.report.calibration import MIN_TRIALS, Calibration, false_positive_rate
from studies.report.estimates import Improvement, improvement
from studies.report.paired import Sample
from studies.report.records import TrialRecords
from studies.report.verdicts import Comparison, Verdict, assess, conclude

MEASURES = {"final_score": "final score", "area": "area under the learning curve"}


@dataclass(frozen=True)
class MeasureVerdicts:
    """Verdicts on two agents by one measure."""

    games: dict[str, Verdict]
    overall: Verdict


@dataclass(frozen=True)
class AgentPair:
    """An agent of the chosen task and the one it is compared with."""

    agent: str
    other: str
    improvements: dict[str, Improvement]
    """By game, where both have finished trials."""
    final_score: MeasureVerdicts
    area: MeasureVerdicts

    def verdicts_by(self, measure: str) -> MeasureVerdicts:
        return self.area if measure == "area" else self.final_score


def compare_agents(records: TrialRecords, chosen: str) -> list[AgentPair]:
    """All pairs of agents with their verdicts; Holm's correction is over all pairs and games of one measure."""
    agents = sort_agents(trial.agent for trial in records.trials)
    shared = {pair: _shared_games(records, *pair) for pair in compared_agents(agents, chosen)}
    shared = {pair: games for pair, games in shared.items() if games}
    tables = {measure: _verdict_table(records, shared, measure) for measure in MEASURES}
    return [
        AgentPair(
            agent.label,
            other.label,
            _improvements(records, agent, other, games),
            *(tables[m][agent, other] for m in MEASURES),
        )
        for (agent, other), games in shared.items()
    ]


def _verdict_table(
    records: TrialRecords, shared: dict[tuple[AgentVariant, AgentVariant], list[str]], measure: str
) -> dict[tuple[AgentVariant, AgentVariant], MeasureVerdicts]:
    comparisons: dict[tuple[AgentVariant, AgentVariant, str | None], Comparison] = {}
    untested: dict[tuple[AgentVariant, AgentVariant], Verdict] = {}
    for (agent, other), games in shared.items():
        x, y = ([_sample(records, game, side, measure) for game in games] for side in (agent, other))
        for game, ours, theirs in zip(games, x, y, strict=True):
            comparisons[agent, other, game] = Comparison([ours], [theirs])
        both = [index for index in range(len(games)) if x[index] and y[index]]
        pooled = Comparison([x[i] for i in both], [y[i] for i in both], over_games=True)
        if mixed := mixed_protocols(records, [games[index] for index in both]):
            untested[agent, other] = Verdict("not pooled", mixed)
        elif len(games) == 1:
            untested[agent, other] = Verdict("not pooled", "there is one game", assess(pooled).estimate)
        else:
            comparisons[agent, other, None] = pooled
    verdicts = dict(zip(comparisons, conclude(list(comparisons.values())), strict=True))
    return {
        (agent, other): MeasureVerdicts(
            {game: verdicts[agent, other, game] for game in games},
            untested.get((agent, other)) or verdicts[agent, other, None],
        )
        for (agent, other), games in shared.items()
    }


def compared_agents(agents: Sequence[AgentVariant], chosen: str) -> list[tuple[AgentVariant, AgentVariant]]:
    """The pairs of agents that a report on a task or an agent compares; raises ConfigError if there is none of that name.

    Each agent of the chosen task is compared with the agents of every other task that have the same settings, or with all of
    them if none has. If there is no other task, the first agent is compared with the rest. An agent chosen by its label is
    compared with every other.
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


def mixed_protocols(records: TrialRecords, games: Iterable[str]) -> str:
    """The reason not to pool these games if their protocols differ, else an empty text; games without a protocol fit any."""
    wanted = set(games)
    found = sorted({t.protocol for t in records.trials if t.game_label in wanted and t.protocol is not None})
    return f"trials of different protocols ({', '.join(found)}) are not pooled" if len(found) > 1 else ""


def calibrate(records: TrialRecords) -> Calibration | None:
    """The calibration by final score on the first plain agent with enough finished trials; None if there is none."""
    for agent in sort_agents(trial.agent for trial in records.trials if trial.task == "none"):
        games = sorted({trial.game_label for trial in records.trials if trial.agent == agent})
        samples = [_sample(records, game, agent, "final_score") for game in games]
        if min(map(len, samples)) >= MIN_TRIALS and not mixed_protocols(records, games):
            return Calibration(agent.label, games, false_positive_rate(samples))
    return None


def _sample(records: TrialRecords, game: str, agent: AgentVariant, measure: str) -> Sample:
    return records.sample(game, agent, (lambda t: t.area) if measure == "area" else (lambda t: t.score))


def _shared_games(records: TrialRecords, agent: AgentVariant, other: AgentVariant) -> list[str]:
    ours, theirs = ({t.game_label for t in records.trials if t.agent == side} for side in (agent, other))
    return sorted(ours & theirs)


def _improvements(records: TrialRecords, agent: AgentVariant, other: AgentVariant, games: list[str]) -> dict[str, Improvement]:
    found = {}
    for game in games:
        x, y = (np.array(list(_sample(records, game, side, "final_score").values()), dtype=float) for side in (agent, other))
        if len(x) and len(y):
            found[game] = improvement(x, y)
    return found
