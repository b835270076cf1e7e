"""Lines of user code, among those of the package and of libraries."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from millwheel.errors import RecordError

_PACKAGE = os.path.join(*Path(__file__).parts[:-4], "")
"""The folder of the package, as the frames of its code have it."""
NOWHERE = "an unknown line"


def is_library(file: str) -> bool:
    """Whether a file is the package's, Python's, or one that was installed."""
    installed = (_PACKAGE, sys.prefix, sys.base_prefix, "<frozen")
    return file.startswith(installed) or "site-packages" in file


def current_line(frame: FrameType | None) -> str:
    """The innermost running line of user code: ``callbacks.py:12 in slow``. Where none does, the
    innermost one."""
    return _innermost(traceback.extract_stack(frame)) if frame is not None else NOWHERE


def line_of(ex: BaseException) -> str:
    """The innermost line of user code from which an exception came, perhaps through a library.
    Where there is none, the position in the pipeline's text, or the innermost line."""
    stack = traceback.extract_tb(ex.__traceback__)
    if isinstance(ex, RecordError) and ex.about and all(map(_is_ours, stack)):
        return ex.about
    return _innermost(stack)


def _is_ours(at: traceback.FrameSummary) -> bool:
    return at.filename.startswith(_PACKAGE)


def _innermost(stack: Sequence[traceback.FrameSummary]) -> str:
    theirs = [each for each in stack if not is_library(each.filename)]
    outside = [each for each in stack if not _is_ours(each)]
    for at in (theirs or outside or stack)[-1:]:
        return f"{os.path.basename(at.filename)}:{at.lineno} in {at.name}"
    return NOWHERE
