"""Arguments that several commands have, and the root that one uses when it was called without
one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from millwheel.errors import SetupError

Pipeline = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="the pipeline's YAML or Python file; FILE.py:NAME if that defines several pipelines",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="value of ${NAME} in the pipeline; repeatable"
    ),
]
RunningRoot = Annotated[
    str, typer.Option(metavar="FOLDER", help="root of the run; default: the only one in .millwheel")
]
RootArgument = Annotated[
    str,
    typer.Argument(metavar="[ROOT]", help="root of the run; default: the only one in .millwheel"),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="as JSON, on standard output (docs/commands.md has its shape)"),
]


def the_root(argument: str, option: str) -> str:
    """The root that a command was given either way; "" for none. Raises SetupError for two."""
    if argument and option and argument != option:
        raise SetupError(f"{argument} and --root {option} are two roots: name one of them")
    return argument or option


def chosen_root(address: str) -> Path:
    """The root at an address; the only one there is where ``address`` is "", and standard error
    names it.

    Raises SetupError when there is no run to choose, or more than one.
    """
    # not above: options are read before it is known whether the command needs a root
    from millwheel.control.roots.attach import find_root

    root = find_root(address)
    if not address:
        short_path = root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root
        sys.stderr.write(f"Using the run in {short_path}\n")
    return root
