"""The hidden file that names the root whose results a folder holds; no second root may write
there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from millwheel.adapters.spaces.durable import create_if_absent, make_dirs, read_whole, write_new
from millwheel.adapters.spaces.files import Files
from millwheel.connect.sinks.error_messages import in_words
from millwheel.errors import SetupError

HIDDEN = ".millwheel"
"""The folder in an output folder for all files that are not results, or not yet."""
MARKER = "results-of"
"""The name of the hidden file."""
_PART = re.compile(r"part-.*\.(?:jsonl|csv|parquet|avro)")


def claim(files: Files, folder: str, identity: str) -> None:
    """Make the folder and mark it as ``identity``'s, or check that it is marked so already. Check
    that it can be written.

    Raises SetupError, with a sentence, when it belongs to another root or cannot be used.
    """
    try:
        hidden = f"{folder}/{HIDDEN}"
        if files.exists(folder) and not files.exists(f"{hidden}/{MARKER}"):
            refuse_results(folder, files.list_dir(folder))
        make_dirs(files, hidden)
        if not create_if_absent(files, hidden, MARKER, identity.encode()):
            refuse_other(
                folder, identity, read_whole(files, f"{hidden}/{MARKER}").decode("utf-8", "replace")
            )
    except OSError as ex:
        # Even a passing fault is an error here: a run that cannot write its results must not start.
        raise SetupError(str(in_words(ex, f"write results to {folder}"))) from ex


def adopt(files: Files, folder: str, former: str, identity: str) -> None:
    """Hand the results of the root ``former`` over to ``identity``, which began with the savepoint
    that ended ``former`` and so continues where its results end. Results of any other root stay as
    they are."""
    hidden = f"{folder}/{HIDDEN}"
    try:
        if (
            files.exists(f"{hidden}/{MARKER}")
            and read_whole(files, f"{hidden}/{MARKER}") == former.encode()
        ):
            temporary = f"{hidden}/{MARKER}.{uuid4().hex}"
            write_new(files, temporary, identity.encode())
            files.rename(temporary, f"{hidden}/{MARKER}")
            files.sync_dir(hidden)
    except OSError as ex:
        raise SetupError(str(in_words(ex, f"go on with the results in {folder}"))) from ex


def discard(folder: str, identity: str) -> str:
    """Remove the results of a root from a folder, and folders that are empty then. Returns a
    sentence about the rest.

    A folder in it that belongs to another root stays as it is, as does every file that is not
    a result."""
    top = Path(folder)
    if not _is_of(top, identity):
        return ""
    for path, folders, names in os.walk(top):
        folders[:] = [
            each
            for each in folders
            if each != HIDDEN and not _is_of_another(Path(path, each), identity)
        ]
        for name in filter(_PART.fullmatch, names):
            os.unlink(Path(path, name))
    for path, _, _ in os.walk(top, topdown=False):
        if Path(path) != top and HIDDEN not in Path(path).parts:
            with suppress(OSError):  # it holds something else
                os.rmdir(path)
    shutil.rmtree(top / HIDDEN)
    return ""


def _is_of(folder: Path, identity: str) -> bool:
    try:
        return (folder / HIDDEN / MARKER).read_text() == identity
    except OSError:
        return False


def _is_of_another(folder: Path, identity: str) -> bool:
    return (folder / HIDDEN / MARKER).exists() and not _is_of(folder, identity)


def refuse_results(folder: str, names: Iterable[str]) -> None:
    """Raises SetupError when some of these names are results, because their root is unknown."""
    if (first := min(filter(_PART.fullmatch, names), default="")) != "":
        raise SetupError(
            f"the output folder {folder} already holds results (for example {first}) of an unknown"
            " root; choose another folder or remove them"
        )


def refuse_other(folder: str, identity: str, owner: str) -> None:
    """Raises SetupError unless ``owner``, the root on the marker, is ``identity``."""
    if owner != identity:
        raise SetupError(
            f"the output folder {folder} holds the results of another root ({owner[:200]}); choose"
            " another folder, run with that root, or remove the folder"
        )
