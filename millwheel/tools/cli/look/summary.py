"""``millwheel summary``: the summary of a run so far, in the form of its final summary."""

from __future__ import annotations

import msgspec
from rich.console import Console

from millwheel.control.roots.attaching import is_driven
from millwheel.control.roots.root import read_completed
from millwheel.errors import SetupError
from millwheel.launch.progress.progress_file import read_progress
from millwheel.launch.progress.report import summary_lines
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli.look.chosen import chosen_root
from millwheel.tools.cli.look.status import write_json


class SummaryShown(msgspec.Struct, frozen=True):
    """A run, in ``--json``: ``state`` is running, stopped or complete."""

    root: str
    state: str
    summary: Summary


def summary(address: str, console: Console, as_json: bool) -> None:
    """Print it. Raises SetupError when no run has been there for half a second."""
    root = chosen_root(address)
    done = read_completed(root)
    if done is not None:
        document = SummaryShown(str(root), "complete", msgspec.convert(done, Summary))
    else:
        noted = read_progress(root)
        if noted is None:
            raise SetupError(f"The run on {root} has done nothing yet; ask again in a second")
        document = SummaryShown(
            str(root), "running" if is_driven(root) else "stopped", noted.summary
        )
    if as_json:
        return write_json(document)
    console.print(
        f"The run on {root} is {document.state}.", markup=False, highlight=False, soft_wrap=True
    )
    for line in summary_lines(document.summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return None
