"""Which trials are seeds of one agent, and which are trials of one game.

An agent is a task and the settings that tell its trials apart; a game under two protocols is two games. A setting tells agents
apart if it alters learning and trials of one game differ in it. It may differ from game to game, as sweeps of their own do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, get_args

from configs.settings import setting_text
from configs.train import TaskName

if TYPE_CHECKING:
    from studies.report.records import TrialRecord


@dataclass(frozen=True)
class Agent:
    """What is compared on a game."""

    task: str
    settings: tuple[tuple[str, Any], ...] = ()
    """By name, those that tell agents apart and that the task reads."""

    @property
    def label(self) -> str:
        text = ", ".join(f"{name} {setting_text(value)}" for name, value in self.settings)
        return f"{self.task} ({text})" if text else self.task

    def matches(self, other: Agent) -> bool:
        """Whether the settings that both read are equal."""
        theirs = dict(other.settings)
        return all(theirs.get(name, value) == value for name, value in self.settings)


def in_order(agents: Iterable[Agent]) -> list[Agent]:
    """Built-in tasks as the command line lists them, then others by name; agents of one task by their settings."""
    built_in = get_args(TaskName)

    def key(agent: Agent) -> tuple[Any, ...]:
        place = built_in.index(agent.task) if agent.task in built_in else len(built_in)
        return place, agent.task, agent.settings

    return sorted(set(agents), key=key)


def with_labels(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials with the agent and the game that each belongs to."""
    told = _differing(trials, lambda trial: (trial.game, trial.protocol))
    protocols = {game: {trial.protocol for trial in trials if trial.game == game} for game in {t.game for t in trials}}
    return [
        replace(
            trial,
            agent=Agent(trial.task, tuple((name, trial.settings[name]) for name in told if name in trial.settings)),
            game_label=f"{trial.game} ({trial.protocol})" if len(protocols[trial.game]) > 1 else trial.game,
        )
        for trial in trials
    ]


def unequal_settings(trials: Sequence[TrialRecord]) -> Iterator[str]:
    """What must be said of labelled trials: tasks without one value of a setting in common, scores not measured alike."""
    for game in sorted({trial.game_label for trial in trials}):
        of_game = [trial for trial in trials if trial.game_label == game]
        for name in dict.fromkeys(name for trial in of_game for name, _ in trial.agent.settings):
            values: dict[str, set[Any]] = {}
            for trial in of_game:
                if name in trial.settings:
                    values.setdefault(trial.task, set()).add(trial.settings[name])
            if any(not ours & theirs for ours, theirs in combinations(values.values(), 2)):
                shown = ", ".join(f"{task} {' and '.join(map(setting_text, sorted(found)))}" for task, found in values.items())
                yield f"{game}: trials differ in {_flag(name)} ({shown}); take no comparison at its word"
        episodes = sorted({trial.eval_episodes for trial in of_game})
        if len(episodes) > 1:
            shown = ", ".join(map(str, episodes))
            yield f"{game}: trials differ in --eval-episodes ({shown}); their scores are not measured alike"


def code_versions(trials: Sequence[TrialRecord]) -> Iterator[str]:
    """What must be said where trials were made by more than one version of the code or of a library that learning rests on."""
    commits = Counter(" then ".join(sorted(trial.commits)) for trial in trials if trial.commits)
    if len(frozenset().union(*(trial.commits for trial in trials))) > 1:
        shown = ", ".join(f"{count} by {_short(commit)}" for commit, count in commits.most_common())
        yield f"several versions of the code made the trials ({shown}); what changed between them may show in the scores"
    versions = [found for trial in trials if isinstance(found := trial.origin.get("versions"), dict)]
    for name in ("torch", "ale-py"):
        counts = Counter(str(found.get(name))[:100] for found in versions)
        if len(counts) > 1:
            shown = ", ".join(f"{count} with {version}" for version, count in counts.most_common())
            yield f"several versions of {name} made the trials ({shown})"


def _short(commits: str) -> str:
    return " then ".join(commit[:10] for commit in commits.split(" then "))


def settings_by_game(trials: Sequence[TrialRecord]) -> Iterator[str]:
    """Settings of labelled trials that differ from game to game and tell no agents apart."""
    told = {name for trial in trials for name, _ in trial.agent.settings}
    for name in _differing(trials, lambda trial: ()):
        if name not in told:
            found = {trial.game_label: setting_text(trial.settings[name]) for trial in trials if name in trial.settings}
            yield f"{name}: {', '.join(f'{value} on {game}' for game, value in sorted(found.items()))}"


def _differing(trials: Sequence[TrialRecord], group: Any) -> list[str]:
    """Names of the settings in which trials of one group differ, in the order of the config."""
    values: dict[tuple[str, Any], set[Any]] = {}
    for trial in trials:
        for name, value in trial.settings.items():
            values.setdefault((name, group(trial)), set()).add(value)
    return list(dict.fromkeys(name for (name, _), found in values.items() if len(found) > 1))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
