"""The detectors that watch an agent play: the retrospective one, forward TD error, z-scores and river's HalfSpaceTrees.

All see the features of the agent's torso. A detector is fitted on normal play and then frozen; the higher its score, the less
normal is the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from retrospective.anomaly import anomaly_probability
from retrospective.finite_mdp import Array
from retrospective.neural_quantile_td import NeuralQuantileTD
from retrospective.reverse_return import n_step
from studies.reproduce.changed_game.play import QUESTIONS, Play
from studies.reproduce.experiment import Settings
from studies.reproduce.streams.detectors import River


class Detector(Protocol):
    def fit(self, play: Play) -> None: ...

    def score(self, play: Play) -> Array:
        """Scores [T, N]."""
        ...


class Moments:
    """Mean and standard deviation of each column of values [T, N, columns]; 1 where the latter is 0."""

    def __init__(self, values: Array):
        std = values.std((0, 1))
        self.mean, self.std = values.mean((0, 1)), np.where(std > 0, std, 1.0)

    def standardise(self, values: Array) -> Array:
        return (values - self.mean) / self.std


def root_mean_square(errors: Array) -> Array:
    """Of each column of errors [T, N, columns]; 1 where it is 0."""
    found = np.sqrt((errors**2).mean((0, 1)))
    return np.where(found > 0, found, 1.0)


class Questions:
    """Distributions of the two returns, each learnt by a network from standardised features, in units of its return's spread.

    n steps are taken as one, so that the past of a life is learnt with few synchronisations of the target network.
    With `forward` the stream is read backwards: Reverse TD on a reversed stream is TD.
    """

    def __init__(self, settings: Settings, seed: int, forward: bool = False):
        self._settings, self._seed = settings, seed
        self._order = slice(None, None, -1 if forward else 1)

    def fit(self, play: Play) -> None:
        self._features = Moments(play.features)
        self.scale = Moments(play.returns).std
        n = self._settings["n_step"]
        states = self._features.standardise(play.features)[self._order]
        reward, discount = n_step((play.reward / self.scale)[self._order], play.discount[self._order], n)
        before, after = (x.reshape(-1, x.shape[-1]) for x in (states[:-n], states[n:]))
        self._learners = []
        for question in range(len(QUESTIONS)):
            learner = NeuralQuantileTD(
                states.shape[-1],
                self._settings["quantiles"],
                learning_rate=self._settings["learning_rate"],
                capacity=len(after),
                batch_size=min(self._settings["batch_size"], len(after)),
                target_interval=self._settings["target_interval"],
                kappa=self._settings["kappa"],
                seed=self._seed + question,
            )
            learner.observe(before, after, reward[..., question].ravel(), discount[..., question].ravel())
            for _ in range(self._settings["updates"]):
                learner.update()
            self._learners.append(learner)

    def quantiles(self, features: Array) -> Array:
        """[T, N, questions, quantiles], in units of `scale`."""
        states = self._features.standardise(features)
        return np.stack([learner.quantiles(states) for learner in self._learners], axis=-2)


class Retrospective:
    """Anomaly probability of the two returns, given the state: their mean."""

    def __init__(self, settings: Settings, seed: int):
        self._questions = Questions(settings, seed)

    def fit(self, play: Play) -> None:
        self._questions.fit(play)
        errors = play.returns / self._questions.scale - self._questions.quantiles(play.states).mean(-1)
        self._unit = root_mean_square(errors)

    def score(self, play: Play) -> Array:
        return self.probabilities(play).mean(-1)

    def probabilities(self, play: Play) -> Array:
        """[T, N, questions], with delta and sigma the root mean square of the prediction's error."""
        quantiles = self._questions.quantiles(play.states) / self._unit[:, None]
        return anomaly_probability(play.returns / self._questions.scale / self._unit, quantiles)

    def ranks(self, play: Play) -> Array:
        """|2 F(G) - 1|, [T, N, questions], with F(G) the share of the quantiles below G: 0 at the median, 1 outside of all."""
        below = self._questions.quantiles(play.states) < (play.returns / self._questions.scale)[..., None]
        return np.abs(2 * below.mean(-1) - 1)


class OneQuestion:
    """Anomaly probability of one of the returns; the whole detector is fitted before."""

    def __init__(self, whole: Retrospective, question: str):
        self._whole, self._question = whole, QUESTIONS.index(question)

    def fit(self, play: Play) -> None:
        pass

    def score(self, play: Play) -> Array:
        return self._whole.probabilities(play)[..., self._question]


class Rank:
    """Mean rank of the two returns; unlike the anomaly probability it is in no state high by nature.

    The whole detector is fitted before.
    """

    def __init__(self, whole: Retrospective):
        self._whole = whole

    def fit(self, play: Play) -> None:
        pass

    def score(self, play: Play) -> Array:
        return self._whole.ranks(play).mean(-1)


class ForwardTD:
    """|TD error| of two GVFs, reward to come and steps to the next lost life, over its root mean square; the larger counts."""

    def __init__(self, settings: Settings, seed: int):
        self._questions = Questions(settings, seed, forward=True)

    def fit(self, play: Play) -> None:
        self._questions.fit(play)
        self._unit = root_mean_square(self._errors(play))

    def score(self, play: Play) -> Array:
        return (np.abs(self._errors(play)) / self._unit).max(-1)

    def _errors(self, play: Play) -> Array:
        """delta_t = R_t + gamma_t v(S_t) - v(S_{t-1}), [T, N, questions]."""
        value = self._questions.quantiles(play.features).mean(-1)
        return play.reward / self._questions.scale + play.discount * value[1:] - value[:-1]


class ZScore:
    """Largest |z| over the columns that `values` takes from a play."""

    def __init__(self, values: Callable[[Play], Array]):
        self._values = values

    def fit(self, play: Play) -> None:
        self._moments = Moments(self._values(play))

    def score(self, play: Play) -> Array:
        return np.abs(self._moments.standardise(self._values(play))).max(-1)


class Trees:
    """river's HalfSpaceTrees with its default settings, on features scaled to [0, 1]."""

    def __init__(self, seed: int):
        self._seed = seed

    def fit(self, play: Play) -> None:
        from river import anomaly

        count = play.states.shape[-1]
        self._detector = River(anomaly.HalfSpaceTrees(seed=self._seed), list(range(count)))
        self._detector.fit(play.states.reshape(-1, count))

    def score(self, play: Play) -> Array:
        flat = self._detector.score(play.states.reshape(-1, play.states.shape[-1]), learn=False)
        return flat.reshape(play.states.shape[:-1])


def make_detectors(settings: Settings, seed: int) -> dict[str, Detector]:
    """The detectors by name; the first is the retrospective one."""
    retrospective = Retrospective(settings, seed)
    return {
        "retrospective": retrospective,
        **{f"retrospective, {question}": OneQuestion(retrospective, question) for question in QUESTIONS},
        "retrospective, rank": Rank(retrospective),
        "forward TD error": ForwardTD(settings, seed),
        "z-score, features": ZScore(lambda play: play.states),
        "z-score, returns": ZScore(lambda play: play.returns),
        "HalfSpaceTrees": Trees(seed),
    }
