"""The boundary around user code: which exceptions are its failures.

Whatever a function of the user's raises concerns the record that it was called with, whether that derives from
Exception or not: ``sys.exit()``, a cancelled task, memory that was asked for in vain, a panic of a library in Rust.
Only what says that this worker must not go on passes.
"""

from __future__ import annotations

import signal

from millwheel.errors import CorruptionError, FencedError, InvariantError

FATAL = (CorruptionError, FencedError, InvariantError)
"""Errors that concern the whole shard, not a single record."""


def passes(ex: BaseException) -> bool:
    """Whether an exception ends the worker. A KeyboardInterrupt does where Python itself makes one of a signal; workers
    handle their signals in another way, so there it comes from the user's code."""
    if isinstance(ex, KeyboardInterrupt):
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(ex, FATAL)
