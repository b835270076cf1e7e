"""Errors as a person at a terminal sees them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from millwheel.errors import BrokenError, MillwheelError
from millwheel.secret_values import masking

_BROKEN = 3  # Fixed: exit code of a pipeline that cannot go on
_INTERRUPTED = 130  # Fixed: exit code after Ctrl-C, as shells have it


@contextmanager
def sentences() -> Iterator[None]:
    """Turns an error of ours into its text on standard error and exit code 1, or 3 when a run was stopped because too
    much failed; Ctrl-C ends with 130. No secret that became known meanwhile is written there.

    A reader of our standard output that has gone away (``| head``) ends us quietly, as Unix expects.
    """
    plain, sys.stderr = sys.stderr, masking(sys.stderr)
    try:
        yield
    except MillwheelError as error:
        sys.stderr.write(f"millwheel: {error}\n")
        sys.exit(_BROKEN if isinstance(error, BrokenError) else 1)
    except KeyboardInterrupt:
        sys.stderr.write("millwheel: interrupted\n")
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        sys.exit(1)
    finally:
        sys.stderr = plain
