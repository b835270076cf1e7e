"""Which root's results a folder holds: a file in it says so, and no second root may write there."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path

from millwheel.errors import SetupError
from millwheel.sinks.disk import Disk, in_words

MARKER = ".millwheel"
_PART = re.compile(r"part-.*\.(?:jsonl|parquet)")


def claim(disk: Disk, folder: Path, identity: str) -> None:
    """Make the folder and mark it as ``identity``'s, or find that it is, and that it can be written.

    Raises SetupError, with a sentence, when it is another's or cannot be used.
    """
    try:
        disk.make_folder(folder)
        _refuse_unmarked(disk, folder)
        found = _mark(disk, folder, identity)
    except FileExistsError as ex:
        raise SetupError(f"the output {folder} is a file, and results need a folder; choose another path") from ex
    except OSError as ex:
        # What may pass later must not begin now: a run that cannot write its results helps nobody.
        raise SetupError(str(in_words(ex, f"write results to {folder}"))) from ex
    if found != identity:
        raise SetupError(
            f"the output folder {folder} holds the results of another root ({found[:200]}); choose another folder, "
            "run with that root, or remove the old results"
        )


def _refuse_unmarked(disk: Disk, folder: Path) -> None:
    names = disk.names(folder)
    foreign = [name for name in names if _PART.fullmatch(name)]
    if foreign and MARKER not in names:
        raise SetupError(
            f"the output folder {folder} already holds results (for example {foreign[0]}) of an unknown root; "
            "choose another folder or remove them"
        )


def _mark(disk: Disk, folder: Path, identity: str) -> str:
    """Link a marker into place, durably; the content of the one that stands. Also proves that links work here."""
    temp = folder / f".marker-{os.getpid()}-{uuid.uuid4().hex}.tmp"
    try:
        disk.write(temp, identity.encode())
        with contextlib.suppress(FileExistsError):
            disk.link(temp, folder / MARKER)
        disk.sync(folder)
        return disk.read(folder / MARKER).decode("utf-8", "replace")
    finally:
        with contextlib.suppress(OSError):
            disk.unlink(temp)
