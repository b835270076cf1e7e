"""Every error of this package, in one tree.

    MillwheelError
    ├── PipelineError      the pipeline as written cannot run: file, line, field and the fix
    ├── SetupError         the surroundings are missing or wrong: Java, ports, roots, ZooKeeper
    ├── BrokenError        too many calls of a source or computation failed: the run was stopped
    ├── RecordError        one record cannot be used: it goes to the dead-letter stream
    ├── FencedError        a newer owner has taken over: this process must exit
    ├── CorruptionError    stored bytes fail their check: recovery stops, nothing older is used
    ├── ConflictError      a compare-and-set lost: read again, decide again
    ├── ExhaustedError     a resource of this machine is used up: nothing was done, try again later
    ├── UnavailableError   an outside system did not answer; the outcome is indeterminate
    └── InvariantError     a bug of ours; survives ``python -O``

A type exists only where a caller acts differently.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = [
    "BrokenError",
    "ConflictError",
    "CorruptionError",
    "EndlessTimerError",
    "ExhaustedError",
    "FencedError",
    "InvariantError",
    "MillwheelError",
    "PipelineError",
    "RecordError",
    "SetupError",
    "UnavailableError",
    "invariant",
    "unreachable",
]


class MillwheelError(Exception):
    """The root of the tree. Its text says what happened, where, and what to do."""


class PipelineError(MillwheelError):
    """The pipeline definition is wrong; nothing was started.

    ``problems`` holds one sentence per mistake, each already carrying file, line and field.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SetupError(MillwheelError):
    """Something outside the pipeline is missing or wrong; the message says what to install or
    change."""


class BrokenError(MillwheelError):
    """Too many calls of a ``node`` failed (``on_error``), so the run was stopped. Nothing is
    lost."""

    def __init__(self, text: str, node: str) -> None:
        super().__init__(text)
        self.node = node


class RecordError(MillwheelError):
    """One record cannot be processed; the reason goes with it to the dead-letter stream.
    ``aggregate`` names the aggregate that cannot use it, if there is one; ``about`` the part of the
    pipeline's text."""

    aggregate = ""
    about = ""


class EndlessTimerError(RecordError):
    """A timer sets timers again and again although the input has ended. It stops the run: no result
    would ever be whole."""


class FencedError(MillwheelError):
    """The store shows that a newer owner has taken over. Nothing more may be acked; the process
    exits."""


class CorruptionError(MillwheelError):
    """Stored bytes do not match their checksum or form. Recovery must stop here."""


class ConflictError(MillwheelError):
    """A compare-and-set found another version than expected."""


class ExhaustedError(MillwheelError):
    """A shared resource of this machine, such as open files, is used up. Nothing was done; try
    again later."""


class UnavailableError(MillwheelError):
    """An outside system did not answer in time; it is uncertain whether the call took effect."""


class InvariantError(MillwheelError):
    """The program broke a promise to itself; please report it with the text of this error."""


def invariant(condition: bool, text: str) -> None:
    """Raise :class:`InvariantError` with ``text`` unless ``condition`` holds (also under
    ``-O``)."""
    if not condition:
        raise InvariantError(text)


def unreachable(value: NoReturn) -> NoReturn:
    """For the last case of a ``match``: mypy finds the kinds that the others leave out."""
    raise InvariantError(f"nothing is known about {value!r}")
