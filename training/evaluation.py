"""Evaluation of trained agents: scores and videos."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

from actors.evaluator import MAX_ENVS, EvaluationResult, evaluate, record_video
from actors.resources import acting_threads, available_cores
from agents.agent import Agent
from agents.initialisation import skip_initialisation
from agents.threads import set_threads
from configs.commands import EvaluateConfig
from configs.errors import CheckpointError, ConfigError, RunError, StopRequested
from configs.plugins import check_trusted
from configs.train import TrainConfig
from envs.registry import check_trusted_game, game_spec
from training.progress import Progress, counted, tell
from training.storage.checkpoint import Checkpoint, CheckpointDirectory
from training.storage.files import explain
from training.storage.run_directory import RunDirectory, provenance


def play_games(
    agent: Agent,
    config: TrainConfig,
    episodes: int,
    seed: int,
    stop: threading.Event,
    cores: int = 0,
    greedy: bool = False,
) -> EvaluationResult:
    """Play whole games and show progress; `cores` 0 uses all."""
    cores = cores or available_cores()
    set_threads(acting_threads(min(episodes, MAX_ENVS), cores))
    progress = Progress(f"evaluating {config.env.game}", episodes, unit="game")

    def watch(done: int, steps: int) -> None:
        progress.update(done, counted(steps, "step"))
        _heed(stop)

    try:
        return evaluate(agent.cpu(), config.env.game, config.env.protocol, episodes, seed, cores, watch, greedy)
    finally:
        progress.close()


def _heed(stop: threading.Event) -> None:
    if stop.is_set():
        raise StopRequested


def evaluate_run(config: EvaluateConfig, stop: threading.Event) -> dict[str, Any]:
    """Evaluate a run's checkpoint: write evaluation.json, then record a video if requested, which may fail or be interrupted.

    Needs no lock: the run may train meanwhile, and other evaluations may play. Every file is written whole, by the last to end.
    """
    directory = RunDirectory.open(Path(config.run_dir))
    _check_writable(directory)
    trained = directory.read_config()
    check_trusted_game(trained.env.game, config.game)
    check_trusted("torso", trained.agent.torso, config.torso)
    for flag, named, recorded in (("game", config.game, trained.env.game), ("torso", config.torso, trained.agent.torso)):
        if named and named != recorded:
            raise ConfigError(f"the run's {flag} is {recorded}; --{flag} {named} cannot change it")
    checkpoints = directory.checkpoints(trained.run.keep_checkpoints)
    checkpoint = choose_checkpoint(checkpoints, config)
    agent, frame = load_agent(trained, checkpoint, config.torso), trained_frames(checkpoint)
    reached = max([frame, *checkpoints.frames()])
    if reached < trained.run.frames:
        tell(f"the run is at frame {reached:,} of {trained.run.frames:,}; playing with the weights of frame {frame:,}")
    evaluation = play_games(agent, trained, config.episodes, config.seed, stop, greedy=config.greedy)
    result: dict[str, Any] = {"checkpoint": config.checkpoint, "frame": frame, "seed": config.seed}
    result |= {"task": trained.task, **evaluation.summary(), "video": None}
    origin = provenance()
    record = _write_record(directory, result | origin)
    if config.video:
        path = directory.path / "videos" / _video_name(config, frame)
        game, protocol = trained.env.game, trained.env.protocol
        try:
            record_video(agent, game, protocol, config.seed, path, lambda: _heed(stop), config.greedy)
        except StopRequested:
            return result
        except OSError as error:
            raise RunError(f"no film in {path.parent}: {explain(error)}; the scores are in {record}") from None
        result["video"] = str(path)
        _write_record(directory, result | origin)
    return result


def film(config: TrainConfig, agent: Agent, frame: int, directory: RunDirectory, stop: threading.Event) -> Path | None:
    """Film a game of an agent at the end of its training; None if a stop was requested or the disk refuses, which is told."""
    path = directory.path / "videos" / f"latest_{frame:012d}.mp4"
    tell("filming a game")
    try:
        record_video(agent, config.env.game, config.env.protocol, config.run.seed, path, lambda: _heed(stop))
    except StopRequested:
        return None
    except OSError as error:
        tell(f"no film in {path.parent}: {explain(error)}")
        return None
    return path


def choose_checkpoint(checkpoints: CheckpointDirectory, config: EvaluateConfig) -> Checkpoint:
    """The one that --checkpoint names."""
    frame = config.checkpoint_frame()
    if frame is not None:
        return checkpoints.of_frame(frame)
    return checkpoints.best() if config.checkpoint == "best" else checkpoints.newest()


def _check_writable(directory: RunDirectory) -> None:
    """Raise RunError if the results cannot be written, before any game is played."""
    try:
        tempfile.TemporaryFile(dir=directory.path).close()
    except OSError as error:
        raise RunError(f"cannot write to {directory.path}: {explain(error)}") from None


def _write_record(directory: RunDirectory, result: dict[str, Any]) -> Path:
    """Writes evaluation.json; a command that takes the run's lock meanwhile may remove the unfinished file, once."""
    path = directory.path / "evaluation.json"
    try:
        directory.write_json(path, result)
    except RunError:
        directory.write_json(path, result)
    return path


def _video_name(config: EvaluateConfig, frame: int) -> str:
    which = "frame" if config.checkpoint_frame() is not None else config.checkpoint
    return f"{which}_{frame:012d}{'_greedy' if config.greedy else ''}.mp4"


def load_agent(config: TrainConfig, checkpoint: Checkpoint, torso: str = "") -> Agent:
    """The acting network of a checkpoint; `torso` is what the user named, for a config whose torso is not built in."""
    check_trusted("torso", config.agent.torso, torso)
    spec = game_spec(config.env.game, config.env.protocol)
    with skip_initialisation():
        agent = Agent(spec, config.agent.torso, config.agent.lstm_size)
    try:
        agent.load_state_dict(checkpoint.group("learner.parameter.agent"))
    except RuntimeError as error:
        raise CheckpointError(f"the checkpoint is of another network: {str(error).splitlines()[-1].strip()}") from None
    for name, value in agent.state_dict().items():
        if not value.isfinite().all():
            raise CheckpointError(f"the checkpoint's {name} is not finite")
    return agent


def trained_frames(checkpoint: Checkpoint) -> int:
    counters = checkpoint.tensors.get("learner.counters")
    if counters is None or counters.shape != (2,) or counters.is_floating_point() or counters.min() < 0:
        raise CheckpointError("the checkpoint does not say how many frames it was trained for")
    return int(counters[0])
