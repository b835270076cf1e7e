"""The ``millwheel`` command: the declarations of commands, and their code, which is imported when
they are called."""

from __future__ import annotations

import atexit
import gc
import sys

from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.processes.libraries import no_idle_threads
from millwheel.launch.head_start import head_start


def main() -> None:
    """Entry point: our own errors appear as sentences on standard error with exit code 1, never as
    a stack trace."""
    atexit.register(gc.freeze)  # the process ends: a last garbage collection would be wasted
    no_idle_threads()
    begin_process()
    with head_start(sys.argv[1:]):
        from millwheel.tools.cli.app import app  # meanwhile the warm parent loads
        from millwheel.tools.cli.errors import sentences

        with sentences():
            app()
