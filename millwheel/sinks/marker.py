"""Which root's results a folder holds: a file in it says so, and no second root may write there."""

from __future__ import annotations

import re

from millwheel.adapters.durable import create_if_absent, make_dirs, read_whole
from millwheel.adapters.files import Files
from millwheel.errors import SetupError
from millwheel.sinks.wording import in_words

MARKER = ".millwheel"
_PART = re.compile(r"part-.*\.(?:jsonl|parquet)")


def claim(files: Files, folder: str, identity: str) -> None:
    """Make the folder and mark it as ``identity``'s, or find that it is, and that it can be written.

    Raises SetupError, with a sentence, when it is another's or cannot be used.
    """
    try:
        make_dirs(files, folder)
        names = files.list_dir(folder)
        _refuse_unmarked(folder, names)
        if not create_if_absent(files, folder, MARKER, identity.encode()):
            _refuse_other(folder, identity, read_whole(files, f"{folder}/{MARKER}").decode("utf-8", "replace"))
    except OSError as ex:
        # What may pass later must not begin now: a run that cannot write its results helps nobody.
        raise SetupError(str(in_words(ex, f"write results to {folder}"))) from ex


def _refuse_unmarked(folder: str, names: list[str]) -> None:
    results = [name for name in names if _PART.fullmatch(name)]
    if results and MARKER not in names:
        raise SetupError(
            f"the output folder {folder} already holds results (for example {min(results)}) of an unknown root; "
            "choose another folder or remove them"
        )


def _refuse_other(folder: str, identity: str, found: str) -> None:
    if found != identity:
        raise SetupError(
            f"the output folder {folder} holds the results of another root ({found[:200]}); choose another folder, "
            "run with that root, or remove the old results together with its hidden file .millwheel"
        )
