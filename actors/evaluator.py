"""EvaluationResult with fixed weights on whole games, and videos."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np

from actors.policy import Policy
from agents.agent import Agent
from envs.atari import published_scores
from envs.registry import applied_protocol, make_games, optimal_score
from envs.stream import EpisodeStream, StreamStep, episode_seed

MAX_ENVS = 16
VIDEO_FPS = 15
VIDEO_HEIGHT = 210
MAX_VIDEO_STEPS = 5 * 60 * VIDEO_FPS


@dataclass(frozen=True)
class EvaluationResult:
    """Unclipped scores and lengths of whole games; actions are sampled from the policy, or its argmax if `greedy`."""

    game: str
    protocol: str
    scores: list[float]
    steps: list[int]
    greedy: bool = False

    def summary(self) -> dict[str, Any]:
        """Statistics and scores, as result.json holds them."""
        n = len(self.scores)
        mean = statistics.fmean(self.scores)
        reference = published_scores().get(self.game)
        return {
            "game": self.game,
            "protocol": applied_protocol(self.game, self.protocol),
            "greedy": self.greedy,
            "episodes": n,
            "mean": mean,
            "median": statistics.median(self.scores),
            "standard_error": statistics.stdev(self.scores) / n**0.5 if n > 1 else None,
            "human_normalised": reference.human_normalised(mean) if reference else None,
            "optimal": optimal_score(self.game),
            "scores": self.scores,
            "steps": self.steps,
        }


class Player:
    """An agent that acts in the N games of a stream."""

    def __init__(self, agent: Agent, stream: EpisodeStream, seed: int, greedy: bool = False):
        self._policy = Policy(agent, stream.spec, seed, greedy)
        self._stream = stream
        self._frames = stream.reset()
        self._new_game = self._first = np.ones(stream.num_envs, dtype=bool)

    def step(self) -> tuple[np.ndarray, StreamStep]:
        """Act once in every game; return the actions [N] and the resulting step."""
        actions = self._policy.act(self._frames, self._new_game, self._first)
        step = self._stream.step(actions)
        self._frames, self._new_game, self._first = step.frames, step.new_game, step.first
        return actions, step


def evaluate(
    agent: Agent,
    game: str,
    protocol: str,
    episodes: int,
    seed: int,
    num_threads: int = 1,
    on_step: Callable[[int, int], None] = lambda done, steps: None,
    greedy: bool = False,
) -> EvaluationResult:
    """Play `episodes` whole games; `on_step` is called after every step with the games finished and the environment steps.

    Each environment plays a fixed number of games: taking whichever games end first would favour short ones.
    """
    num_envs = min(episodes, MAX_ENVS)
    quota = np.array([episodes // num_envs + (env < episodes % num_envs) for env in range(num_envs)])
    stream = EpisodeStream(make_games(game, protocol, num_envs, num_threads), seed)
    player = Player(agent, stream, seed, greedy)
    scores: list[float] = []
    steps: list[int] = []
    played = np.zeros(num_envs, dtype=int)
    total_steps = 0
    while len(scores) < episodes:
        _, step = player.step()
        total_steps += num_envs
        for env, episode in zip(step.ended, step.episodes, strict=True):
            if played[env] < quota[env]:
                played[env] += 1
                scores.append(episode.score)
                steps.append(episode.steps)
        on_step(len(scores), total_steps)
    stream.close()
    return EvaluationResult(game, protocol, scores, steps, greedy)


def record_video(
    agent: Agent,
    game: str,
    protocol: str,
    seed: int,
    path: Path,
    on_frame: Callable[[], None] = lambda: None,
    greedy: bool = False,
) -> float:
    """Write a video of one game, of at most five minutes, and return the score up to its end.

    `on_frame` is called for every frame. The file appears at `path` only when it is complete. Raises OSError if it cannot
    be written.
    """
    frames, score = record_frames(agent, game, protocol, seed, on_frame, greedy)
    path.parent.mkdir(exist_ok=True)
    # In a new directory, since ffmpeg would follow a symbolic link at `path`.
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as directory:
        unfinished = Path(directory) / path.name
        _encode(frames, unfinished, on_frame)
        unfinished.replace(path)
    return score


def _encode(frames: list[np.ndarray], path: Path, on_frame: Callable[[], None]) -> None:
    zoom = max(1, VIDEO_HEIGHT // frames[0].shape[0])
    try:
        writer = imageio.get_writer(path, fps=VIDEO_FPS, macro_block_size=2, ffmpeg_log_level="quiet")
        with writer:
            for frame in frames:
                on_frame()
                writer.append_data(frame.repeat(zoom, 0).repeat(zoom, 1))
        # The writer does not report whether ffmpeg succeeded. The index is written last, and the reader needs it.
        imageio.get_reader(path).close()
    except OSError:
        raise OSError("ffmpeg could not write it; the disk may be full") from None


def record_frames(
    agent: Agent,
    game: str,
    protocol: str,
    seed: int,
    on_frame: Callable[[], None] = lambda: None,
    greedy: bool = False,
) -> tuple[list[np.ndarray], float]:
    """Frames [H, W, 3] of one game, for Atari at full size and in colour, and the score up to the last frame.

    The agent acts on the frames it was trained on; the frames returned come from a second game with the same seed and actions.
    """
    stream = EpisodeStream(make_games(game, protocol, num_envs=1), seed)
    video_games = make_games(game, protocol, num_envs=1, for_video=True)
    player = Player(agent, stream, seed, greedy)
    everywhere = np.ones(1, dtype=bool)
    frames = [video_games.reset(everywhere, np.array([episode_seed(seed, env=0, number=0)]))[0]]
    score = 0.0
    for _ in range(MAX_VIDEO_STEPS):
        actions, step = player.step()
        frames.append(video_games.step(actions, everywhere).frames[0])
        on_frame()
        score += float(step.reward[0])
        if step.episodes:
            break
    stream.close()
    video_games.close()
    images = [frame.transpose(1, 2, 0) for frame in frames]
    return [image.repeat(3, 2) if image.shape[2] == 1 else image for image in images], score
