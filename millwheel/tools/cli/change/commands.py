"""The commands that change a run: its ranges, workers, savepoints, records and dead letters. Their
code is imported when they are called."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millwheel.adapters.terminal import Terminal
from millwheel.core.model.times import duration_us
from millwheel.errors import SetupError
from millwheel.tools.cli.arguments import AsJson, RootArgument, RunningRoot, Timeout, the_root

changing = typer.Typer()
ranges = typer.Typer(
    help="Show, split, merge and move the key ranges of a running pipeline.", no_args_is_help=True
)
changing.add_typer(ranges, name="ranges")
Shard = Annotated[
    str, typer.Argument(help="its name, as `millwheel ranges show` prints it, e.g. traffic-0")
]


@ranges.command("show")
def ranges_show(
    node: Annotated[str, typer.Argument(help="only this node")] = "",
    root: RunningRoot = "",
    as_json: AsJson = False,
) -> None:
    """Show the shards of each node: key range, owner, and load."""
    from millwheel.tools.cli.change.ranges import show

    show(root, node, Terminal(width=None if sys.stdout.isatty() else 200), as_json)


@ranges.command("split")
def ranges_split(
    shard: Shard,
    root: RunningRoot = "",
    at: Annotated[
        str, typer.Option(metavar="HASH", help="where the upper half begins; default: the middle")
    ] = "",
    key: Annotated[
        str,
        typer.Option(
            help=(
                "a text key: the upper half begins with its hash (of slices: any key, with its"
                " slot)"
            )
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Split a shard in two while records flow. Only shards of computations can be split."""
    from millwheel.tools.cli.change.ranges import split

    split(root, shard, at, key, Terminal(stderr=True), as_json)


@ranges.command("merge")
def ranges_merge(
    lower: Shard, upper: Shard, root: RunningRoot = "", as_json: AsJson = False
) -> None:
    """Merge two neighbouring shards while records flow. Name the one with the lower keys first."""
    from millwheel.tools.cli.change.ranges import merge

    merge(root, lower, upper, Terminal(stderr=True), as_json)


@ranges.command("move")
def ranges_move(
    shard: Shard,
    worker: Annotated[str, typer.Argument(help="its name, as `millwheel ranges show` prints it")],
    root: RunningRoot = "",
    as_json: AsJson = False,
) -> None:
    """Move a shard to another worker. Shards are balanced again when workers join or leave."""
    from millwheel.tools.cli.change.ranges import move

    move(root, shard, worker, Terminal(stderr=True), as_json)


@changing.command()
def scale(
    workers: Annotated[int, typer.Option(min=1, help="number of workers, without spares")],
    folder: RootArgument = "",
    root: RunningRoot = "",
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="how long to wait for the change")
    ] = "1m",
    as_json: AsJson = False,
) -> None:
    """Change the number of workers of a running pipeline. A leaving worker gives its ranges away
    first."""
    from millwheel.tools.cli.change.ranges import scale as change

    change(
        the_root(folder, root),
        workers,
        seconds(timeout, "--timeout"),
        Terminal(stderr=True),
        as_json,
    )


@changing.command()
def savepoint(
    folder: Annotated[
        str,
        typer.Argument(metavar="FOLDER", help="a new or empty folder that all workers can reach"),
    ],
    root: RunningRoot = "",
    timeout: Timeout = "1m",
    as_json: AsJson = False,
) -> None:
    """Copy the state of a running pipeline to a folder from which other runs can start. The
    pipeline continues."""
    from millwheel.tools.cli.change.savepoint import savepoint as take

    take(folder, root, seconds(timeout, "--timeout"), Terminal(stderr=True), as_json)


@changing.command()
def stop(
    folder: RootArgument = "",
    root: RunningRoot = "",
    drain: Annotated[
        bool,
        typer.Option(
            "--drain",
            help="end the sources where they are, let every window fire, then stop for good",
        ),
    ] = False,
    savepoint: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="take a savepoint and stop with it; no window fires early"
        ),
    ] = "",
    timeout: Timeout = "1m",
    as_json: AsJson = False,
) -> None:
    """Stop a running pipeline: like Ctrl-C, drained, or with a savepoint."""
    from millwheel.tools.cli.change.savepoint import Ending
    from millwheel.tools.cli.change.savepoint import stop as end

    if drain and savepoint:
        raise SetupError(
            "--drain ends the pipeline for good, --savepoint keeps it for another run: give one of"
            " them. (To keep the state as well, take a savepoint first.)"
        )
    ending = Ending.DRAINED if drain else Ending.SAVED if savepoint else Ending.AT_ONCE
    root = the_root(folder, root)
    end(root, ending, savepoint, seconds(timeout, "--timeout"), Terminal(stderr=True), as_json)


@changing.command()
def inject(
    stream: Annotated[str, typer.Argument(help="a stream with `source: {injection: {}}`")],
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="JSON lines; - reads standard input")
    ],
    root: RunningRoot = "",
    id_field: Annotated[
        str,
        typer.Option(
            "--id",
            metavar="FIELD",
            help=(
                "field that identifies a record; default: the stream's id; without either, each"
                " line is a record"
            ),
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=(
                "name of this input, for lines without an id: sent again under this name, each line"
                " still counts once"
            ),
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Send records to a running pipeline. They are durable when this command ends, and count once
    if they have ids."""
    from millwheel.tools.cli.change.inject import inject as send

    send(root, stream, file, id_field, name, Terminal(stderr=True), as_json)


OfComputation = Annotated[
    str, typer.Option(metavar="NAME", help="only those of this computation or source")
]
WithReason = Annotated[
    str, typer.Option(metavar="TEXT", help="only those whose reason contains this")
]


@changing.command()
def letters(
    folder: RootArgument = "",
    root: RunningRoot = "",
    computation: OfComputation = "",
    reason: WithReason = "",
    as_json: AsJson = False,
) -> None:
    """Show the dead letters of a root by computation and reason: number, times, and an example."""
    from millwheel.tools.cli.change.letters import letters as show

    show(
        the_root(folder, root),
        computation,
        reason,
        as_json,
        Terminal(width=None if sys.stdout.isatty() else 200),
    )


@changing.command()
def replay(
    folder: RootArgument = "",
    root: RunningRoot = "",
    computation: OfComputation = "",
    reason: WithReason = "",
    limit: Annotated[int | None, typer.Option(min=1, help="at most this many")] = None,
    as_json: AsJson = False,
) -> None:
    """Retry dead letters after fixing code or data: each once, in the computation that failed on
    it.

    A running pipeline takes them at once; a stopped or complete root takes them at its next
    `millwheel run`.
    """
    from millwheel.tools.cli.change.letters import replay as again

    again(the_root(folder, root), computation, reason, limit, Terminal(stderr=True), as_json)


def seconds(text: str, option: str) -> float:
    """A duration such as 2s or 1m, in seconds. Raises SetupError naming the option."""
    try:
        duration_s = duration_us(text) / 1e6
    except ValueError as ex:
        raise SetupError(f"{option} {text}: {ex}") from None
    if duration_s <= 0:
        raise SetupError(f"{option} {text}: write a duration above zero, for example {option} 1m")
    return duration_s
