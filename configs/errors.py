"""Errors whose message says all that the user needs: `launch.py` prints one line and exits with code 2."""


class ConfigError(ValueError):
    """A setting that cannot work; the message is meant for the person who gave it."""


class RunError(ValueError):
    """A run directory that cannot be used as asked; the message says why."""


class PoolError(RuntimeError):
    """The actors cannot continue; the message says why."""


class RankError(RuntimeError):
    """A learner of a group is gone, hung or different from the others; the message says which and why."""


class NodeError(PoolError):
    """A machine of a cluster has other versions than the launching one, or not its directory; the message says which."""


class StopRequested(Exception):
    """The user or the system asked the run to end."""


class GameError(ValueError):
    """A game that does not exist or cannot be played; the message says why."""


class CheckpointError(ValueError):
    """A file that is not a usable checkpoint; the message says why."""


class PluginError(RuntimeError):
    """Code of a task or torso raised an error; the message names it, and `trace` is its traceback, which `launch.py` prints."""

    def __init__(self, message: str, trace: str = ""):
        super().__init__(message, trace)
        self.trace = trace

    def __str__(self) -> str:
        return str(self.args[0])


class NonFiniteError(RuntimeError):
    """A loss or gradient is NaN or infinite; the update that would have spoilt the parameters was not made."""
