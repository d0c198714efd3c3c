"""Names of what can be plugged in: a built-in name, or PACKAGE.MODULE:NAME for code outside this repository.

Code is imported because the command line or a Python caller named it, never because a file did: `resolve` is for the former,
`check_name` and `check_trusted` are for names that were read from a file.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from configs.errors import ConfigError, NonFiniteError, PluginError, RankError

FOREIGN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
LONGEST_NAME = 150

_plugged_in: set[str] = set()
"""Top-level names of the modules whose tasks and torsos were named."""


def is_foreign(name: str) -> bool:
    """Whether a name is of the form PACKAGE.MODULE:NAME."""
    return len(name) <= LONGEST_NAME and FOREIGN.fullmatch(name) is not None


def nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def check_name(name: str, built_in: Iterable[str], what: str) -> None:
    """Raise ConfigError unless the name is built in or could name code of a user's own; imports nothing."""
    known = list(built_in)
    if name not in known and not is_foreign(name):
        choices = f"there is {', '.join(known)}, or PACKAGE.MODULE:NAME for one of your own"
        raise ConfigError(f"unknown {what} '{name}'{nearest(name, known) or f'; {choices}'}")


def resolve(name: str, built_in: Mapping[str, Any], what: str) -> Any:
    """What a name that the user gave stands for; raises ConfigError if there is no such thing."""
    check_name(name, built_in, what)
    if name in built_in:
        return built_in[name]
    module_name, _, attribute = name.partition(":")
    module = import_named(module_name, name, ConfigError)
    _plugged_in.add(module_name.partition(".")[0])
    try:
        return getattr(module, attribute)
    except AttributeError:
        public = [known for known in vars(module) if not known.startswith("_")]
        raise ConfigError(f"the module '{module_name}' has no {what} '{attribute}'{nearest(attribute, public)}") from None


def plugged_in() -> list[str]:
    """Directories of packages and files of modules that hold the tasks and torsos which were named."""
    found = []
    for name in sorted(_plugged_in & sys.modules.keys()):
        module = sys.modules[name]
        directories = list(getattr(module, "__path__", []))
        found += directories[:1] or ([module.__file__] if module.__file__ else [])
    return found


def import_named(module: str, name: str, error_type: type[Exception]) -> ModuleType:
    """Import the module of a name that the user gave; `error_type` says what to install if that fails."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        raise error_type(
            f"the module '{module}' of {name} cannot be imported: {error}; "
            f"install what is missing (pip install {missing}, if its package has that name) or add its directory to PYTHONPATH"
        ) from error
    except Exception as error:  # The user's own code may raise anything.
        raise error_type(f"the module '{module}' of {name} cannot be imported: {type(error).__name__}: {error}") from error


@contextmanager
def errors_named(what: str) -> Iterator[None]:
    """Turn an exception of plugged-in code into a PluginError that names it and keeps its traceback."""
    try:
        yield
    except (ConfigError, PluginError, NonFiniteError, RankError):
        raise
    except Exception as error:  # The user's own code may raise anything.
        raise PluginError(f"{what} failed: {type(error).__name__}: {error}", traceback.format_exc()) from error


def check_trusted(setting: str, recorded: str, named: str) -> None:
    """Raise ConfigError if the task or torso `recorded` in a file is not built in, unless the user `named` the same."""
    module, colon, _ = recorded.rpartition(":")
    if colon and named != recorded:
        raise ConfigError(untrusted(setting, module, recorded))


def untrusted(setting: str, module: str, recorded: str) -> str:
    return f"this run's {setting} would run the code of '{module}'; if you trust it, add --{setting} {recorded}"
