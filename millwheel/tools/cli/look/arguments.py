"""Arguments that several commands have."""

from __future__ import annotations

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
