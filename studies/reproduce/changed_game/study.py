"""The changed game: a frozen agent plays, and detectors that learnt from normal play watch for the game to change.

All changes continue the same saved streams, so that nothing before the change differs, and the unchanged ones are a control.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from agents.threads import set_threads
from configs.commands import ReproduceConfig
from configs.errors import ConfigError
from studies.reproduce.changed_game.detectors import make_detectors
from studies.reproduce.changed_game.figures import draw
from studies.reproduce.changed_game.game import NORMAL, Change, EmulatedGames, available
from studies.reproduce.changed_game.measures import Watch, median_delay, noticed, separation
from studies.reproduce.changed_game.play import Play, Player, agent_directory
from studies.reproduce.changed_game.summary import summarise
from studies.reproduce.experiment import Experiment, Settings, require_extra, run_generator
from studies.statistics import bootstrap_interval, mean

SETTINGS: Settings = {
    "games": {"gopher": {"mode": 2, "difficulty": 1}, "space_invaders": {"mode": 1, "difficulty": 1}},
    "sticky": 0.25,
    "frame_skip": 8,
    "random_actions": [0.1, 0.5],
    "streams": 10,
    "restart_steps": 800,
    "learning_steps": 2400,
    "calibration_steps": 1400,
    "held_out_steps": 800,
    "watching_steps": 300,
    "features": 32,
    "discount": 0.99,
    "false_alarm_rate": 0.01,
    "decay": 0.98,
    "n_step": 30,
    "quantiles": 20,
    "kappa": 0.1,
    "learning_rate": 2e-3,
    "batch_size": 256,
    "updates": 800,
    "target_interval": 20,
}
DEFAULT_RUNS = 10
NOTHING, NEW_GAME, MODE = "nothing", "new game", "mode"


def reproduce_changed_game(config: ReproduceConfig, stop: threading.Event) -> str:
    """Write data.json, figure.png and summary.md; return the summary."""
    require_extra("streams", "changed_game", "river")
    check_settings(SETTINGS)
    runs, games = config.runs_or(DEFAULT_RUNS), list(SETTINGS["games"])
    names = list(make_detectors(SETTINGS, seed=0))
    settings = SETTINGS | {"study": "changed_game", "seed": config.seed, "detectors": names}
    experiment = Experiment(Path(config.out), settings, config.ray_address)
    data = experiment.collect(runs * len(games), 1, run_games, "reproduce changed_game", stop)
    of_game = {game: data[i :: len(games)] for i, game in enumerate(games)}
    rates = [row for game, found in of_game.items() for row in rate_rows(game, found)]
    rows = [row for game, found in of_game.items() for row in change_rows(game, found)]
    experiment.write_json("data.json", {"runs": runs, "false_alarms": rates, "changes": rows})
    draw(rows, experiment.out / "figure.png")
    summary = summarise(rows, rates, runs, settings)
    experiment.write_text("summary.md", summary)
    return summary


def check_settings(settings: Settings) -> None:
    """Raise ConfigError or CheckpointError unless there is an agent of every game, and its game has the mode and difficulty."""
    for game, changed in settings["games"].items():
        agent_directory(game)
        for name, offered in zip(("mode", "difficulty"), available(game), strict=True):
            if changed[name] not in offered[1:]:
                raise ConfigError(f"{game} has no other {name} {changed[name]}; it has {', '.join(map(str, offered[1:]))}")


def make_changes(game: str, settings: Settings) -> dict[str, Change]:
    """The changes by name, and two controls: nothing, and a new game, with which another mode has to begin."""
    changed = settings["games"][game]
    return {
        NOTHING: NORMAL,
        NEW_GAME: Change(new_game=True),
        MODE: Change(mode=changed["mode"]),
        "difficulty": Change(difficulty=changed["difficulty"]),
        "sticky actions": Change(sticky=settings["sticky"]),
        "frame skip": Change(frame_skip=settings["frame_skip"]),
        "recoloured": Change(recoloured=True),
        "masked": Change(masked=True),
        **{f"{share:.0%} random actions": Change(random_actions=share) for share in settings["random_actions"]},
    }


def control_of(change: str) -> str:
    return NEW_GAME if change == MODE else NOTHING


def run_games(settings: Settings, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Runs of the games in turn: run 0 of the first game, run 0 of the second, and so on."""
    set_threads(1)
    games = list(settings["games"])
    found = []
    for number in numbers:
        run, index = divmod(number, len(games))
        seed = int(run_generator(settings["seed"], run).integers(1 << 30))
        found.append(run_game(settings, games[index], seed))
    return found


def run_game(settings: Settings, game: str, seed: int) -> dict[str, Any]:
    """Measured false-alarm rates, and what every detector says to every change."""
    start = time.process_time()
    emulators = {sticky: EmulatedGames(game, settings["streams"], seed, sticky) for sticky in (0.0, settings["sticky"])}
    player = Player(game, emulators[0.0], seed, settings["features"], settings["discount"])
    learning = player.record(settings["learning_steps"], restarts=settings["restart_steps"])
    calibration, held_out = (player.record(settings[f"{part}_steps"]) for part in ("calibration", "held_out"))
    saved = player.save()
    watches, rates, changes = {}, {}, {}
    for name, detector in make_detectors(settings, seed).items():
        detector.fit(learning)
        watches[name] = Watch(detector, settings["decay"])
        rates[name] = watches[name].calibrate(calibration, held_out, settings["false_alarm_rate"])
    for name, change in make_changes(game, settings).items():
        player.restore(saved, emulators[change.sticky], change)
        play = player.record(settings["watching_steps"])
        watched = {detector: asdict(watch.watch(play)) for detector, watch in watches.items()}
        changes[name] = {"pace": _pace(play), "watched": watched}
    seconds = round(time.process_time() - start, 1)
    return {"rates": rates, "normal": _pace(held_out), "changes": changes, "seconds": seconds}


def _pace(play: Play) -> list[float]:
    """Reward of a step, and lives lost in 1,000 steps."""
    return [round(float(play.reward[..., 0].mean()), 5), round(1000 * float((play.discount[..., 1] == 0).mean()), 3)]


def rate_rows(game: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measured false-alarm rate of each detector, its mean over runs with a bootstrap interval."""
    rates = {detector: np.array([run["rates"][detector] for run in runs]) for detector in runs[0]["rates"]}
    low, high = bootstrap_interval(mean, np.stack(list(rates.values()), axis=-1))
    return [
        {"game": game, "detector": detector, "rate": float(each.mean()), "interval": [float(low[i]), float(high[i])]}
        for i, (detector, each) in enumerate(rates.items())
    ]


def change_rows(game: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every change and detector: share noticed, that beyond the control with a bootstrap interval over runs, delay, AUC."""
    rows, beyond = [], []
    for change, detector in product(runs[0]["changes"], runs[0]["rates"]):
        pace = np.mean([run["changes"][change]["pace"] for run in runs], axis=0)
        seen, control = ([run["changes"][name]["watched"][detector] for run in runs] for name in (change, control_of(change)))
        shares, chance = (np.array([noticed(run["delays"]) for run in each]) for each in (seen, control))
        beyond.append(shares - chance)
        aucs = [separation(run["means"], other["means"]) for run, other in zip(seen, control, strict=True)]
        rows.append(
            {
                "game": game,
                "change": change,
                "detector": detector,
                "noticed": float(shares.mean()),
                "beyond_control": float(beyond[-1].mean()),
                "median_delay": median_delay([delay for run in seen for delay in run["delays"]]),
                "auc": float(np.mean(aucs)),
                "reward_a_step": float(pace[0]),
                "lives_lost_in_1000_steps": float(pace[1]),
            }
        )
    low, high = bootstrap_interval(mean, np.stack(beyond, axis=-1))
    return [row | {"interval": [float(low[i]), float(high[i])]} for i, row in enumerate(rows)]
