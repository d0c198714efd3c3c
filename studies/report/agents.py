"""Groups the trials of a report into agents and games.

An agent is a task together with the values of the settings in which agents differ; a game under two protocols is two games.
Agents differ in a setting if it alters learning and varies between trials of one game. A setting that varies only between games
makes no new agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from configs.settings import setting_text
from configs.tasks import BUILT_IN_TASKS

if TYPE_CHECKING:
    from studies.report.records import TrialRecord


@dataclass(frozen=True)
class AgentVariant:
    """What a report compares: a task with particular settings. Its trials differ only in game and seed."""

    task: str
    settings: tuple[tuple[str, Any], ...] = ()
    """Names and values of the settings in which agents differ and that the task reads."""

    @property
    def label(self) -> str:
        text = ", ".join(f"{name} {setting_text(value)}" for name, value in self.settings)
        return f"{self.task} ({text})" if text else self.task

    def matches(self, other: AgentVariant) -> bool:
        """Whether the settings that both agents have are equal."""
        theirs = dict(other.settings)
        return all(theirs.get(name, value) == value for name, value in self.settings)


def sort_agents(agents: Iterable[AgentVariant]) -> list[AgentVariant]:
    """The distinct agents: built-in tasks in the order of the command line, then others by name; within a task by settings."""
    built_in = list(BUILT_IN_TASKS)

    def key(agent: AgentVariant) -> tuple[Any, ...]:
        place = built_in.index(agent.task) if agent.task in built_in else len(built_in)
        return place, agent.task, agent.settings

    return sorted(set(agents), key=key)


def with_labels(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials with their `agent` and `game_label` filled in."""
    varied = _differing(trials, lambda trial: (trial.game, trial.protocol))
    protocols = {game: {trial.protocol for trial in trials if trial.game == game} for game in {t.game for t in trials}}
    return [
        replace(
            trial,
            agent=AgentVariant(trial.task, tuple((name, trial.settings[name]) for name in varied if name in trial.settings)),
            game_label=f"{trial.game} ({trial.protocol})" if len(protocols[trial.game]) > 1 else trial.game,
        )
        for trial in trials
    ]


def unequal_settings_problems(trials: Sequence[TrialRecord]) -> Iterator[str]:
    """Warnings about labelled trials: tasks that share no value of a setting, scores of different numbers of games."""
    for game in sorted({trial.game_label for trial in trials}):
        of_game = [trial for trial in trials if trial.game_label == game]
        for name in dict.fromkeys(name for trial in of_game for name, _ in trial.agent.settings):
            values: dict[str, set[Any]] = {}
            for trial in of_game:
                if name in trial.settings:
                    values.setdefault(trial.task, set()).add(trial.settings[name])
            if any(not ours & theirs for ours, theirs in combinations(values.values(), 2)):
                shown = ", ".join(f"{task} {' and '.join(map(setting_text, sorted(found)))}" for task, found in values.items())
                yield f"{game}: trials differ in {_flag(name)} ({shown}); comparisons of these tasks are confounded"
        episodes = sorted({trial.eval_episodes for trial in of_game})
        if len(episodes) > 1:
            shown = ", ".join(map(str, episodes))
            yield f"{game}: trials differ in --eval-episodes ({shown}); their scores are not comparable"


def code_version_problems(trials: Sequence[TrialRecord]) -> Iterator[str]:
    """Warnings about trials of different versions of the code, of torch or of ale-py."""
    commits = Counter(trial.commits for trial in trials if trial.commits)
    if len({commit for trial in trials for commit in trial.commits}) > 1:
        shown = ", ".join(f"{count} by {' then '.join(commit[:10] for commit in ran)}" for ran, count in commits.most_common())
        yield f"the trials are from several versions of the code ({shown}); changes between them may affect the scores"
    versions = [found for trial in trials if isinstance(found := trial.origin.get("versions"), dict)]
    for name in ("torch", "ale-py"):
        counts = Counter(str(found.get(name))[:100] for found in versions)
        if len(counts) > 1:
            shown = ", ".join(f"{count} with {version}" for version, count in counts.most_common())
            yield f"the trials are from several versions of {name} ({shown})"


def settings_by_game(trials: Sequence[TrialRecord]) -> Iterator[str]:
    """Settings of labelled trials that vary between games but not between agents."""
    varied = {name for trial in trials for name, _ in trial.agent.settings}
    for name in _differing(trials, lambda trial: ()):
        if name not in varied:
            found = {trial.game_label: setting_text(trial.settings[name]) for trial in trials if name in trial.settings}
            yield f"{name}: {', '.join(f'{value} on {game}' for game, value in sorted(found.items()))}"


def _differing(trials: Sequence[TrialRecord], group: Any) -> list[str]:
    """Names of the settings in which trials of the same group differ, in the order of the config."""
    values: dict[tuple[str, Any], set[Any]] = {}
    recorded: dict[str, set[str]] = {}
    """By task, the settings that any of its trials records; one that lacks some differs from those that have them."""
    for trial in trials:
        recorded.setdefault(trial.task, set()).update(trial.settings)
    for trial in trials:
        for name in [*trial.settings, *sorted(recorded[trial.task] - trial.settings.keys())]:
            values.setdefault((name, group(trial)), set()).add(trial.settings.get(name, _ABSENT))
    return list(dict.fromkeys(name for (name, _), found in values.items() if len(found) > 1))


_ABSENT = object()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
