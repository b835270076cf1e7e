"""The first steps of a run, before the driver's own modules are loaded. They save a tenth of a
second."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from millwheel.adapters.secret_values import FOLDER_VARIABLE
from millwheel.launch.launchers.head_start import taken
from millwheel.launch.launchers.warm_children import Children
from millwheel.launch.settings import LauncherKind, RunSettings


def children_for(settings: RunSettings) -> AbstractContextManager[Children | None]:
    """The starter of this machine's processes; it lives as long as the context. With plain
    processes, it loads their modules while the driver loads its own. With Spark there is none
    (None)."""
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
