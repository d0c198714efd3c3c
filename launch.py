"""Hindcast's command line: parse, build, run."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import select
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from actors.ray_log import separate_stderr
from configs.commands import BenchmarkConfig, EvaluateConfig, GamesConfig, ReportConfig, ReproduceConfig
from configs.errors import (
    CheckpointError,
    ConfigError,
    GameError,
    NonFiniteError,
    PluginError,
    PoolError,
    RankError,
    RunError,
    StopRequested,
)
from configs.installation import describe
from configs.shell import launch_command, program_name, tensorboard_command
from studies.command_line import announce_imports, parse, parse_compare, parse_train

EXPECTED = (ConfigError, GameError, RunError, CheckpointError, PoolError, RankError, NonFiniteError)
"""Errors that are reported by their message alone; any other is a bug and shows its traceback."""
MAX_PROBLEMS = 20
"""Problems of a report that are printed."""


def train(arguments: Sequence[str], stop: threading.Event) -> None:
    """Train an agent; --resume continues an interrupted run."""
    config = parse_train(arguments)
    announce_imports("torch")
    from training.loop import train as run_training
    from training.outcome import describe_end, resume_arguments

    try:
        result = run_training(config, stop)
    except StopRequested:
        print("stopped before the first update; nothing was written")
        return
    if result is None:
        print(f"stopped and saved; continue with: {launch_command('train', *resume_arguments(config))}")
        return
    print("\n".join(describe_end(config, result)))


def evaluate(arguments: Sequence[str], stop: threading.Event) -> None:
    """Play whole games with a trained agent."""
    config = parse(EvaluateConfig, "evaluate", arguments)
    from training.evaluation import evaluate_run
    from training.outcome import describe_scores

    try:
        result = evaluate_run(config, stop)
    except StopRequested:
        print("stopped; nothing was written")
        return
    if config.json:
        print(json.dumps(result))
    else:
        print(describe_scores(result))
        if result["video"]:
            print(f"video: {result['video']}")


def benchmark(arguments: Sequence[str], stop: threading.Event) -> None:
    """Measure the throughput of every component and of training."""
    config = parse(BenchmarkConfig, "benchmark", arguments)
    if config.data_plane:
        from studies.benchmark.data_plane import measure_data_plane as measure
        from studies.benchmark.data_plane import print_data_plane as print_table
    else:
        from studies.benchmark.throughput import print_table
        from studies.benchmark.throughput import run_benchmark as measure

    try:
        result = measure(config, stop)
    except StopRequested:
        print("stopped; there is no result")
        return
    print(json.dumps(result)) if config.json else print_table(result)


def games(arguments: Sequence[str], stop: threading.Event) -> None:
    """List the games, with random, human and IMPALA scores."""
    config = parse(GamesConfig, "games", arguments)
    from studies.games import list_games, print_games

    print(json.dumps(list_games())) if config.json else print_games()


def compare(arguments: Sequence[str], stop: threading.Event) -> None:
    """Run a sweep: train every task on every game with every seed; the same command continues it."""
    config = parse_compare(arguments)
    announce_imports("torch", "ray")
    from studies.compare.scheduler import compare as run_sweep

    try:
        run_sweep(config, shlex.join(["launch.py", "compare", *arguments]), stop)
    except StopRequested:
        print(f"stopped and saved; continue with: {launch_command('compare', *arguments)}")
        print(f"report of the finished trials: {launch_command('report', config.out)}")
        return
    if not config.dry_run:
        print(f"finished; make the report with: {launch_command('report', config.out)}")
        print(f"watch the learning curves with: {tensorboard_command(Path(config.out))}")


def report(arguments: Sequence[str], stop: threading.Event) -> None:
    """Report on the trials in one or more directories: report DIR [DIR ...]."""
    config = parse(ReportConfig, "report", arguments)
    config.check_complete()
    from studies.report.report import make_report

    made = make_report(config)
    for problem in made.problems[:MAX_PROBLEMS]:
        print(f"{program_name()}: {printable(problem)}", file=sys.stderr)
    if len(made.problems) > MAX_PROBLEMS:
        print(f"{program_name()}: {len(made.problems) - MAX_PROBLEMS} more problems are listed on the page", file=sys.stderr)
    print("\n".join(map(printable, made.summary)))
    print(f"report: {made.page}")


def reproduce(arguments: Sequence[str], stop: threading.Event) -> None:
    """Reproduce a figure of the paper or a study beyond it: reproduce STUDY --out DIR."""
    if {"-h", "--help"} & set(arguments):
        parse(ReproduceConfig, "reproduce", ["--help"])  # Before the slow imports of the studies.
    from studies.reproduce.reproduce import STUDIES

    if not arguments or (arguments[0] not in STUDIES and not arguments[0].startswith("-")):
        asked = f"unknown study '{arguments[0]}'" if arguments else "no study was named"
        raise ConfigError(f"{asked}; there is {', '.join(STUDIES)}")
    study = None if arguments[0].startswith("-") else arguments[0]
    config = parse(ReproduceConfig, "reproduce", arguments[1:] if study else arguments)
    if study is None:
        raise ConfigError(f"no study was named; there is {', '.join(STUDIES)}")
    try:
        print(STUDIES[study](config, stop))
    except StopRequested:
        print(f"stopped; continue with: {launch_command('reproduce', *arguments)}")


COMMANDS: dict[str, Callable[[Sequence[str], threading.Event], None]] = {
    "train": train,
    "evaluate": evaluate,
    "benchmark": benchmark,
    "games": games,
    "compare": compare,
    "report": report,
    "reproduce": reproduce,
}


EXAMPLES = (
    "train --game pong --task reverse_gvf --frames 10M --run-dir runs/pong",
    "evaluate --run-dir runs/pong --episodes 100 --video",
    "compare --games catch --tasks none gvf reverse_gvf --seeds 5 --frames 100k --out runs/catch",
)


class Interrupt:
    """Handler of SIGINT and SIGTERM: the first signal requests a stop, the second ends the process at once."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)
            _handle_once(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            os._exit(128 + number)
        self.signal = number
        with contextlib.suppress(OSError):  # stderr may be closed.
            os.write(sys.stderr.fileno(), b"stopping after saving (repeat to exit at once)\n")  # Reentrant, unlike print.
        self.stop.set()


def _handle_once(number: int) -> None:
    """Let the kernel restore the signal's default action, which ends the process, after its first delivery.

    Python's own handlers only run between native calls, so the second signal would not end a native call that hangs.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "sysv_signal"):
        libc.signal.restype = ctypes.c_void_p
        handler = libc.signal(number, ctypes.c_void_p(signal.SIG_IGN))
        libc.sysv_signal(number, ctypes.c_void_p(handler))


def report_thread(failure: threading.ExceptHookArgs) -> None:
    """Thread hook without a traceback for OSError: TensorBoard's thread raises it on a full disk, and its caller warns."""
    if not isinstance(failure.exc_value, OSError):
        threading.__excepthook__(failure)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        code = run_command(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        if not stdout_closed():
            raise
        # As with `| head`: everything is saved by now, and the rest of the output is not wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return code


def stdout_closed() -> bool:
    """Whether the reader of stdout has closed it; a BrokenPipeError of any other pipe is a fault."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def print_help() -> None:
    print(f"usage: {program_name()} COMMAND [flags]\n\ncommands:")
    for name, command in COMMANDS.items():
        print(f"  {name:<12} {command.__doc__}")
    print("\nexamples:")
    for example in EXAMPLES:
        print(f"  {launch_command(*example.split())}")
    print(f"\n{launch_command('COMMAND', '--help')} explains every flag; --version says which version this is")


def run_command(arguments: Sequence[str]) -> int:
    separate_stderr()
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    threading.excepthook = report_thread
    # Torch's threads would spin while they wait for each other, on cores that actors need.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Learners on other hosts: that their addresses have no names is no news.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not arguments or arguments[0] in ("-h", "--help"):
        print_help()
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(describe())
        return 0
    if arguments[0] not in COMMANDS:
        print(f"{program_name()}: unknown command '{arguments[0]}'; there is {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    interrupt = Interrupt()
    try:
        COMMANDS[arguments[0]](arguments[1:], interrupt.stop)
    except PluginError as error:
        print(f"{error.trace}{program_name()}: {printable(str(error))}", file=sys.stderr)
        return 1
    except EXPECTED as error:
        print(f"{program_name()}: {printable(str(error))}", file=sys.stderr)
        return 2
    return 128 + interrupt.signal if interrupt.signal else 0


def printable(text: str) -> str:
    """The text as one line without control characters; messages may quote untrusted files."""
    return "".join(character if character.isprintable() else " " for character in text)


if __name__ == "__main__":
    sys.exit(main())
