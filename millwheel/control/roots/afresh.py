"""Whether the folder of a root may be emptied: it must hold nothing but what is this root's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from millwheel.control.roots.root import Root, identity_of
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import SetupError

_RESULTS_OF = ".millwheel/results-of"


def refuse_foreign(root: Root, needed: Iterable[Path]) -> None:
    """Raise SetupError if the folder of a root holds what is not its own: the root or the results
    of another run, or one of the paths ``needed`` by the new one."""
    top = root.path.resolve()
    for path in needed:
        if path.resolve().is_relative_to(top):
            raise SetupError(
                f"{path} lies in the root {top}, which would be emptied; give a new --root"
            )
    for folder in _folders(top):
        other = identity_of(str(folder)) if folder != top else ""
        other = other or _owner_of_results(folder)
        if other and other != str(root.identity):
            raise SetupError(
                f"{folder} in the root {top} belongs to another run ({other}); move it out of the"
                " root"
            )


def _folders(top: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(top):
        yield Path(folder)


def _owner_of_results(folder: Path) -> str:
    try:
        return (folder / _RESULTS_OF).read_text()
    except (OSError, *DAMAGE):
        return ""
