"""The hidden file that names the root whose results a folder holds; no second root may write there."""

from __future__ import annotations

import re
from uuid import uuid4

from millwheel.adapters.spaces.durable import create_if_absent, make_dirs, read_whole, write_new
from millwheel.adapters.spaces.files import Files
from millwheel.errors import SetupError
from millwheel.sinks.error_messages import in_words

HIDDEN = ".millwheel"
"""The folder in an output folder that holds all that is not yet, or never, a result."""
_MARKER = "results-of"
_PART = re.compile(r"part-.*\.(?:jsonl|csv|parquet)")


def claim(files: Files, folder: str, identity: str) -> None:
    """Make the folder and mark it as ``identity``'s, or find that it is, and that it can be written.

    Raises SetupError, with a sentence, when it is another's or cannot be used.
    """
    try:
        hidden = f"{folder}/{HIDDEN}"
        if files.exists(folder) and not files.exists(f"{hidden}/{_MARKER}"):
            _refuse_results(folder, files.list_dir(folder))
        make_dirs(files, hidden)
        if not create_if_absent(files, hidden, _MARKER, identity.encode()):
            _refuse_other(folder, identity, read_whole(files, f"{hidden}/{_MARKER}").decode("utf-8", "replace"))
    except OSError as ex:
        # What may pass later must not begin now: a run that cannot write its results helps nobody.
        raise SetupError(str(in_words(ex, f"write results to {folder}"))) from ex


def adopt(files: Files, folder: str, former: str, identity: str) -> None:
    """Results of the root ``former``, which ended with the savepoint that ``identity`` began with, become those of
    ``identity``: it goes on where they end. Anybody else's stay theirs."""
    hidden = f"{folder}/{HIDDEN}"
    try:
        if files.exists(f"{hidden}/{_MARKER}") and read_whole(files, f"{hidden}/{_MARKER}") == former.encode():
            temporary = f"{hidden}/{_MARKER}.{uuid4().hex}"
            write_new(files, temporary, identity.encode())
            files.rename(temporary, f"{hidden}/{_MARKER}")
            files.sync_dir(hidden)
    except OSError as ex:
        raise SetupError(str(in_words(ex, f"go on with the results in {folder}"))) from ex


def _refuse_results(folder: str, names: list[str]) -> None:
    if results := [name for name in names if _PART.fullmatch(name)]:
        raise SetupError(
            f"the output folder {folder} already holds results (for example {min(results)}) of an unknown root; "
            "choose another folder or remove them"
        )


def _refuse_other(folder: str, identity: str, found: str) -> None:
    if found != identity:
        raise SetupError(
            f"the output folder {folder} holds the results of another root ({found[:200]}); choose another folder, "
            "run with that root, or remove the folder"
        )
