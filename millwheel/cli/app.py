"""The commands and their options."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from millwheel.errors import SetupError

app = typer.Typer(
    name="millwheel",
    help="Millisecond, exactly-once, per-key stream processing in plain Python, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Pipeline = Annotated[str, typer.Argument(metavar="PIPELINE.yaml", help="the pipeline's YAML file")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="value of ${NAME} in the pipeline; repeatable")]


def parse_sets(sets: list[str] | None) -> dict[str, str]:
    """``NAME=VALUE`` pairs as a mapping. Raises SetupError for anything else."""
    found: dict[str, str] = {}
    for pair in sets or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SetupError(f"--set {pair}: write --set NAME=VALUE")
        found[name] = value
    return found


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("millwheel-spark"))
        raise typer.Exit


@app.callback()
def millwheel(
    show_version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")] = False,
) -> None:
    """Millisecond, exactly-once, per-key stream processing in plain Python, on Spark."""


@app.command()
def run(
    pipeline: Pipeline,
    sets: Sets = None,
    workers: Annotated[int, typer.Option(min=1, help="worker processes; each costs about 150 MB")] = 2,
    launcher: Annotated[str, typer.Option(help="spark: inside Spark executors; processes: without a JVM for workers")] = "spark",
    spark_master: Annotated[str, typer.Option(help="URL of a Spark master; default: executors on this machine")] = "",
    root: Annotated[str, typer.Option(help="folder shared by all workers for state and journals; default .millwheel/NAME")] = "",
    zookeeper: Annotated[str, typer.Option(help="host:port[,…]/chroot of a ZooKeeper; default: one is started here")] = "",
    summary: Annotated[str, typer.Option(metavar="FILE.json", help="write the summary there, as JSON")] = "",
) -> None:
    """Run a pipeline until its input ends, or until Ctrl-C. Run again on the same root, it continues."""
    from millwheel.launch.driver import Driver, RunSettings

    if launcher not in ("spark", "processes"):
        raise SetupError(f"--launcher {launcher}: choose spark or processes")
    settings = RunSettings(
        pipeline=pipeline,
        params=parse_sets(sets),
        workers=workers,
        launcher=launcher,
        spark_master=spark_master,
        root=root,
        zookeeper=zookeeper,
        summary=summary,
    )
    raise typer.Exit(Driver(settings, Console(stderr=True)).run())


@app.command()
def validate(pipeline: Pipeline, sets: Sets = None) -> None:
    """Check a pipeline without starting anything."""
    import os

    from millwheel.spec import load_pipeline, resolve_params

    spec = load_pipeline(pipeline, resolve_params(pipeline, parse_sets(sets), os.environ, os.getcwd()))
    typer.echo(f"{spec.name}: {len(spec.streams)} streams, {len(spec.computations)} computations, {len(spec.sinks)} sinks; all right")
