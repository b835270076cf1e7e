"""The first steps of a run, before the driver's own modules are loaded.

The warm parent of a run is started before the command line is read, where the run is sure to need
one: reading it takes a fifth of a second of loading, in which the warm parent loads a third of its
modules. So nothing large is imported here.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from millwheel.adapters.secret_values import FOLDER_VARIABLE
from millwheel.launch.launchers.warm_children import Children

if TYPE_CHECKING:
    from millwheel.launch.settings import RunSettings

SECRETS_VARIABLE = "MILLWHEEL_SECRETS"
"""The environment variable that stands for ``--secrets``."""
_OTHERWISE = {"--help", "--secrets", "--spark-master"}
"""Options with which a run needs no warm parent, or one in another environment."""
_waiting: list[Children] = []


@contextmanager
def head_start(arguments: Sequence[str]) -> Iterator[None]:
    """Begin it for a command with these arguments. Unless it is :func:`taken`, it ends with the
    context."""
    if is_sure(arguments):
        _waiting.append(Children())
    try:
        yield
    finally:
        while _waiting:
            _waiting.pop().close()


def taken() -> Children | None:
    """The starter of processes that has a head start; the caller closes it. None where there is
    none, or no more."""
    return _waiting.pop() if _waiting else None


def is_sure(arguments: Sequence[str]) -> bool:
    """Whether these are the arguments of a run whose workers are plain processes."""
    if (
        not sys.platform.startswith("linux")
        or arguments[:1] != ["run"]
        or os.environ.get(SECRETS_VARIABLE)
    ):
        return False
    options = [argument.partition("=") for argument in arguments]
    if not _OTHERWISE.isdisjoint(name for name, _, _ in options):
        return False
    following = [*arguments[1:], ""]
    launchers = [
        value if equals else following[at]
        for at, (name, equals, value) in enumerate(options)
        if name == "--launcher"
    ]
    return all(launcher == "processes" for launcher in launchers)


def children_for(settings: RunSettings) -> AbstractContextManager[Children | None]:
    """The starter of this machine's processes; it lives as long as the context. With plain
    processes, it loads their modules while the driver loads its own. With Spark there is none
    (None)."""
    from millwheel.launch.settings import LauncherKind  # a tenth of a second, not before the parent

    if settings.secrets:
        # children inherit the environment as of this moment
        os.environ[FOLDER_VARIABLE] = settings.secrets
    if settings.launcher is not LauncherKind.PROCESSES:
        return nullcontext()
    return taken() or Children()


@contextmanager
def loading() -> Iterator[None]:
    """Suspends garbage collection while modules load, and excludes their objects from later
    collections: they all stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
