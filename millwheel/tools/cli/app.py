"""The commands and their options. Their code is imported when they are called, which keeps
``--help`` fast."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from millwheel.adapters.terminal import Terminal
from millwheel.launch.settings import (
    LauncherKind,
    parse_sets,
    parse_spares,
)
from millwheel.tools.cli.arguments import (
    AsJson,
    Pipeline,
    Sets,
    Spares,
    SummaryFile,
    Workers,
)
from millwheel.tools.cli.change.commands import changing
from millwheel.tools.cli.look_commands import looking
from millwheel.tools.cli.query_commands import asking
from millwheel.tools.cli.run import run

app = typer.Typer(
    name="millwheel",
    help="Millisecond, exactly-once, per-key stream processing in plain Python, on Spark.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"millwheel {version('millwheel-spark')}")
        raise typer.Exit


@app.callback()
def millwheel(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Millisecond, exactly-once, per-key stream processing in plain Python, on Spark."""


app.command("run")(run)


@app.command()
def validate(pipeline: Pipeline, sets: Sets = None, as_json: AsJson = False) -> None:
    """Check a pipeline without starting anything. Exits with 1 if it is wrong."""
    from millwheel.tools.cli.pipelines import validate as check

    raise typer.Exit(check(pipeline, parse_sets(sets or []), as_json))


@app.command()
def explain(
    pipeline: Pipeline,
    sets: Sets = None,
    svg: Annotated[
        str, typer.Option(metavar="FILE.svg", help="also draw it there, as an SVG")
    ] = "",
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="as Mermaid text, for Markdown")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Draw a pipeline: its streams, keys, windows, triggers and guarantees. Sources and sinks need
    no parameters."""
    from millwheel.tools.cli.pipelines import explain as show

    console = Terminal(width=None if sys.stdout.isatty() else 120)
    show(pipeline, parse_sets(sets or []), svg, console, mermaid, as_json)


@app.command()
def certs(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="a new or empty folder")],
    renew: Annotated[
        bool,
        typer.Option(
            "--renew", help="new certificates for a folder in use: a running pipeline takes them"
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make certificates and a token for --security: their own CA and one certificate per role,
    valid for a year."""
    from millwheel.launch.certificates import make_set, renew_set

    path = renew_set(folder) if renew else make_set(folder)
    if as_json:
        from millwheel.tools.cli.status import write_json

        write_json({"folder": str(path)})
    else:
        message = f"Renewed {path}; a running pipeline takes the new certificates by itself."
        typer.echo(
            message
            if renew
            else f"Made {path}. Start with: millwheel run PIPELINE --security {folder}"
        )


writing = typer.Typer()


@writing.command()
def dev(
    pipeline: Pipeline,
    sets: Sets = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="STREAM=FILE",
            help="JSON lines in place of the source's records; repeatable",
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="how many records of each source")] = 1000,
    rows: Annotated[int, typer.Option(min=1, help="rows that are shown of each stream")] = 5,
    once: Annotated[
        bool, typer.Option("--once", help="try it once; exits with 1 if it cannot be")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Try a pipeline on its first records, in memory: shows the rows of each stream, again whenever
    a file is saved.

    Nothing is written. Sources that cannot be read get records that are made up from the declared
    fields.
    """
    from millwheel.launch.settings import parse_sets
    from millwheel.tools.dev.trial_loop import again_at_each_save, folder_of, shown_once
    from millwheel.tools.dev.trial_loop import once as attempt

    console = Terminal(width=None if sys.stdout.isatty() else 160)
    one = partial(
        attempt, pipeline, parse_sets(sets or []), parse_sets(inputs or []), records, rows
    )
    if once:
        raise typer.Exit(0 if shown_once(one, console, as_json) else 1)
    again_at_each_save(folder_of(pipeline), one, console, as_json=as_json)


@writing.command()
def lateness(
    pipeline: Pipeline,
    sets: Sets = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="STREAM=FILE",
            help="JSON lines in place of the source's records; repeatable",
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="how many records of each source")] = 100_000,
    svg: Annotated[
        str, typer.Option(metavar="FILE", help="also write the picture there, as SVG")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show how many records of a sample each max_delay would drop as late, by source, and suggest
    one."""
    from millwheel.launch.settings import parse_sets
    from millwheel.tools.dev import lateness as lateness_tools
    from millwheel.tools.dev.trial_loop import loaded

    spec, samples = loaded(pipeline, parse_sets(sets or []), parse_sets(inputs or []), records)
    outcome = lateness_tools.lateness_of(spec, samples)
    if svg:
        from millwheel.tools.dev.lateness_picture import svg_of

        Path(svg).write_text(svg_of(outcome[0]), encoding="utf-8")
    if as_json:
        typer.echo(lateness_tools.as_json(*outcome))
    else:
        lateness_tools.print_lateness(
            *outcome, Terminal(width=None if sys.stdout.isatty() else 160)
        )


@writing.command()
def schema(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="write it there; default: standard output")
    ] = "",
) -> None:
    """Print the JSON Schema of pipeline files, by which editors complete and check them."""
    from millwheel.language.schema.command import schema_text, write_schema

    if file:
        typer.echo(f"Begin your pipelines with: {write_schema(file)}")
    else:
        typer.echo(schema_text(), nl=False)


app.add_typer(looking)
app.add_typer(changing)
app.add_typer(writing)
app.add_typer(asking)


@app.command(name="explain-upgrade")
def explain_upgrade(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="a pipeline's file, a root or a savepoint")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="a pipeline's file")],
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Tell which parts of a changed pipeline fit the old pipeline's state, which migrate, and which
    are refused.

    Exits with 1 if anything is refused.
    """
    from millwheel.tools.cli.pipelines import explain_upgrade as explained

    console = Terminal(width=None if sys.stdout.isatty() else 120)
    raise typer.Exit(explained(old, new, parse_sets(sets or []), console, as_json))


@app.command()
def chaos(
    pipeline: Pipeline,
    sets: Sets = None,
    kill: Annotated[
        str,
        typer.Option(help="what to kill: workers, hosts, executors, master, injector, zookeeper"),
    ] = "workers,master,injector",
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="mean time between two faults")
    ] = "2s",
    pause: Annotated[
        bool, typer.Option("--pause", help="also pause processes, for up to 20 s")
    ] = False,
    partition: Annotated[
        bool,
        typer.Option(
            "--partition",
            help="also cut workers off for up to 20 s, in network namespaces (needs root)",
        ),
    ] = False,
    one_by_one: Annotated[
        bool,
        typer.Option(
            "--one-by-one", help="each fault waits until the previous one has been recovered from"
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="the same seed, the same faults")] = 1,
    most: Annotated[
        int, typer.Option("--faults", min=1, help="at most this many faults; then the run may end")
    ] = 20,
    launcher: Annotated[LauncherKind, typer.Option(help="as in run")] = LauncherKind.PROCESSES,
    workers: Workers = 2,
    spares: Spares = "0",
    hosts: Annotated[
        int,
        typer.Option(
            min=0,
            help=(
                "spread the workers over so many hosts, in network namespaces (needs root); --kill"
                " hosts"
            ),
        ),
    ] = 0,
    folder: Annotated[
        str, typer.Option(metavar="FOLDER", help="roots and logs of the two runs; must be empty")
    ] = ".millwheel/chaos",
    limit: Annotated[
        str, typer.Option(metavar="DURATION", help="a run that takes longer fails")
    ] = "10m",
    summary: SummaryFile = "",
    as_json: AsJson = False,
) -> None:
    """Run a pipeline once undisturbed and once while killing its processes, and compare the results
    row by row.

    It needs bounded input, sinks of kind `files`, and {run} in their paths: --set output=out/{run}.
    Exits with 1 if anything differs.
    """
    from millwheel.tools.chaos.plan import Plan
    from millwheel.tools.cli.chaos import ChaosSettings, parse_seconds, parse_targets
    from millwheel.tools.cli.chaos import chaos as run_chaos

    targets = parse_targets(kill, launcher, partition, hosts)
    plan = Plan(
        targets,
        parse_seconds(every, "--every"),
        pause,
        seed,
        partitions=partition,
        one_by_one=one_by_one,
    )
    limit_s = parse_seconds(limit, "--limit")
    params = parse_sets(sets or [])
    run = pipeline, params, plan, launcher, workers, folder, most, limit_s, summary, as_json
    settings = ChaosSettings(*run, parse_spares(spares), hosts)
    raise typer.Exit(run_chaos(settings, Terminal(stderr=True)))
