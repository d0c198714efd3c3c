"""Sweeps and run directories that are written without training, for tests of their readers."""

import json

from configs.compare import CompareConfig
from studies.compare.sweep import Sweep
from training.storage.run_directory import RunDirectory

FRAMES = 1000


def make_sweep(out, games=("catch",), tasks=("none", "reverse_gvf"), seeds=2, **settings):
    config = CompareConfig(games=games, tasks=tasks, seeds=seeds, frames=FRAMES, out=str(out), **settings)
    sweep = Sweep(config)
    with sweep.claimed("launch.py compare --games catch"):
        pass
    return sweep


def write_trial(trial, score, until=FRAMES, returns=lambda frame: frame / FRAMES):
    """Write the run directory of a trial: its config and curve, and its result if a score is given."""
    directory = RunDirectory(trial.path)
    trial.path.mkdir(parents=True, exist_ok=True)
    directory.write_config(trial.config)
    lines = [{"frame": frame, "charts/episode_return": returns(frame)} for frame in range(100, until + 1, 100)]
    (trial.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if score is not None:
        evaluation = {"mean": score, "episodes": 30, "scores": [score]}
        result = {"frames": trial.config.run.frames, "wall_seconds": 60.0, "frames_per_second": 100.0, "evaluation": evaluation}
        directory.write_json(directory.result_path, result)
