"""The commands for people who write a pipeline. Their code is imported when they are called."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from millwheel.adapters.terminal import Terminal
from millwheel.tools.cli.look.arguments import AsJson, Pipeline, Sets

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
            help="JSON lines in place of what the source has; repeatable",
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
            help="JSON lines in place of what the source has; repeatable",
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
