"""What every process of ours does first."""

from __future__ import annotations

from millwheel.adapters.front.limits import raise_limit
from millwheel.adapters.rights import keep_private


def begin_process(beside: str = "") -> None:
    """From here on, files that this process and its children create are private (see
    :func:`.keep_private`, which has ``beside``), and they may open as many files as the system lets
    them. Entry points call it first: a connection or a file may be opened by any import."""
    keep_private(beside)
    raise_limit()
