"""The commands and their options. Their code is imported when they are called, which keeps
``--help`` fast."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from millwheel.adapters.processes.address import LOOPBACK
from millwheel.adapters.processes.logs import LogFormat
from millwheel.adapters.terminal import Terminal
from millwheel.launch.head_start import children_for, loading
from millwheel.launch.settings import (
    LauncherKind,
    RunSettings,
    launcher_for,
    parse_confs,
    parse_sets,
    parse_spares,
)
from millwheel.tools.cli.ask.commands import asking
from millwheel.tools.cli.change.commands import changing
from millwheel.tools.cli.look.arguments import AsJson, Pipeline, Sets
from millwheel.tools.cli.look.commands import looking
from millwheel.tools.cli.run_options import (
    AnyLogFormat,
    Balance,
    Confs,
    Fresh,
    FromSavepoint,
    Group,
    Listen,
    MetricsListen,
    MetricsPort,
    Open,
    QueryPort,
    RootFolder,
    SecretsFolder,
    SecurityFolder,
    Spares,
    SummaryFile,
    UiPort,
    UntilCaughtUp,
    Verbose,
    Workers,
    ZooKeeper,
)
from millwheel.tools.cli.write.commands import writing

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


@app.command()
def run(
    pipeline: Pipeline,
    sets: Sets = None,
    workers: Workers = 2,
    spares: Spares = "0",
    launcher: Annotated[
        LauncherKind | None,
        typer.Option(
            help=(
                "workers inside Spark executors, or as processes of this machine without a JVM;"
                " default: processes, "
                "or spark with --spark-master"
            )
        ),
    ] = None,
    spark_master: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="a Spark master; --launcher spark alone has executors on this machine",
        ),
    ] = "",
    confs: Confs = None,
    root: RootFolder = "",
    zookeeper: ZooKeeper = "",
    summary: SummaryFile = "",
    listen: Listen = LOOPBACK,
    security: SecurityFolder = "",
    open_to_all: Open = False,
    secrets: SecretsFolder = "",
    from_savepoint: FromSavepoint = "",
    fresh: Fresh = False,
    group: Group = "",
    balance: Balance = True,
    until_caught_up: UntilCaughtUp = False,
    metrics_port: MetricsPort = 0,
    metrics_listen: MetricsListen = "",
    log_format: AnyLogFormat = LogFormat.TEXT,
    query_port: QueryPort = None,
    ui: UiPort = None,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline until its input ends, or until Ctrl-C. The same command on the same root
    continues it.

    Exits with 3 if more calls failed than on_error allows: fix the cause and run again on the same
    root.
    """
    settings = RunSettings(
        pipeline=pipeline,
        params=parse_sets(sets or []),
        workers=workers,
        spares=parse_spares(spares),
        launcher=launcher_for(launcher, spark_master),
        spark_master=spark_master,
        conf=parse_confs(confs or []),
        root=root,
        zookeeper=zookeeper,
        summary=summary,
        listen=listen,
        security=os.path.abspath(security) if security else "",
        open=open_to_all,
        secrets=os.path.abspath(secrets) if secrets else "",
        from_savepoint=from_savepoint,
        fresh=fresh,
        group=group,
        balance=balance,
        until_caught_up=until_caught_up,
        metrics_port=metrics_port,
        metrics_listen=metrics_listen,
        log_format=log_format,
        query_port=query_port,
        ui_port=ui,
        verbose=verbose,
    )
    with children_for(settings) as children:
        with loading():
            from millwheel.launch.driver import Driver  # meanwhile others load what they need

        raise typer.Exit(Driver(settings, Terminal(stderr=True), children).run())


@app.command()
def validate(pipeline: Pipeline, sets: Sets = None, as_json: AsJson = False) -> None:
    """Check a pipeline without starting anything. Exits with 1 if it is wrong."""
    from millwheel.tools.cli.write.validate import validate as check

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
    from millwheel.tools.cli.write.explain import explain as show

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
        from millwheel.tools.cli.look.status import write_json

        write_json({"folder": str(path)})
    else:
        message = f"Renewed {path}; a running pipeline takes the new certificates by itself."
        typer.echo(
            message
            if renew
            else f"Made {path}. Start with: millwheel run PIPELINE --security {folder}"
        )


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
    from millwheel.tools.cli.write.explain_upgrade import explain_upgrade as explained

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
