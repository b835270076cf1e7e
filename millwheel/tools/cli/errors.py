"""Errors on a terminal: messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from millwheel.adapters.secret_values import masking
from millwheel.adapters.terminal import plain_stream
from millwheel.errors import BrokenError, MillwheelError

_BROKEN = 3  # Fixed: exit code of a pipeline that cannot go on
_INTERRUPTED = 130  # Fixed: exit code after Ctrl-C, as shells have it


@contextmanager
def sentences() -> Iterator[None]:
    """Prints one of our own errors as a sentence on standard error and exits with 1, or with 3 when
    a run stopped because too many calls failed; Ctrl-C exits with 130. Secrets that were read
    meanwhile are masked, and control characters do not reach the terminal.

    If the reader of standard output has closed it (``| head``), the command ends quietly, as Unix
    expects.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (plain_stream(masking(stream)) for stream in before)
    try:
        yield
    except MillwheelError as error:
        sys.stderr.write(f"millwheel: {error}\n")
        sys.exit(_BROKEN if isinstance(error, BrokenError) else 1)
    except KeyboardInterrupt:
        sys.stderr.write("millwheel: interrupted\n")
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # the interpreter flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    finally:
        sys.stdout, sys.stderr = before
