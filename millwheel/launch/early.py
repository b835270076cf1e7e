"""What a run begins with, before the driver's own modules are loaded: a tenth of a second is worth it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from millwheel.launch.launchers.warm_children import Children
from millwheel.launch.settings import LauncherKind, RunSettings
from millwheel.secret_values import FOLDER_VARIABLE


def children_for(settings: RunSettings) -> AbstractContextManager[Children | None]:
    """What starts the processes of this machine, for as long as the context lasts. With plain processes it loads what
    they need while the driver loads its own modules; with Spark there is nothing of that kind (None)."""
    if settings.secrets:
        os.environ[FOLDER_VARIABLE] = settings.secrets  # children have our environment as it is now
    return Children() if settings.launcher is LauncherKind.PROCESSES else nullcontext()


@contextmanager
def loading() -> Iterator[None]:
    """While modules are loaded: what they make stays, so nobody looks for garbage among it, now or later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
