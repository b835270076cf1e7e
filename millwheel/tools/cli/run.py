"""``millwheel run``, and the same inside a Spark application for ``spark-submit``, which names
the Spark master."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from millwheel.adapters.processes.address import LOOPBACK
from millwheel.adapters.processes.interpreter import begin_process
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
from millwheel.tools.cli.arguments import (
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
    Pipeline,
    QueryPort,
    RootFolder,
    SecretsFolder,
    SecurityFolder,
    Sets,
    Spares,
    SummaryFile,
    UiPort,
    UntilCaughtUp,
    Verbose,
    Workers,
    ZooKeeper,
)
from millwheel.tools.cli.errors import sentences


def _start(
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
    submitted: bool = False,
) -> None:
    settings = RunSettings(
        pipeline=pipeline,
        params=parse_sets(sets or []),
        workers=workers,
        spares=parse_spares(spares),
        launcher=launcher_for(launcher, spark_master),
        spark_master=spark_master,
        conf=parse_confs(confs or []),
        submitted=submitted,
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
            from millwheel.launch.driver import Driver  # meanwhile the warm parent loads

        raise typer.Exit(Driver(settings, Terminal(stderr=True), children).run())


def _command(sentence: str, **fixed: Any) -> Callable[..., None]:
    """:func:`_start` as a command with this help, without the options that are ``fixed``."""

    def command(**options: Any) -> None:
        _start(**options, **fixed)

    signature = inspect.signature(_start, eval_str=True)
    options = [each for name, each in signature.parameters.items() if name not in fixed]
    # Typer reads both.
    command.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in options}
    command.__doc__ = sentence
    return command


run = _command(
    """Run a pipeline until its input ends, or until Ctrl-C. The same command on the same root
    continues it.

    Exits with 3 if more calls failed than on_error allows: fix the cause and run again on the same
    root.
    """,
    submitted=False,
)
submit = _command(
    "Run a pipeline in the executors of this Spark application, one long task per worker.",
    submitted=True,
    launcher=LauncherKind.SPARK,
    spark_master="",
    confs=None,
)


def main() -> None:
    """Entry point of ``deploy/spark_submit.py``."""
    begin_process()
    with sentences():
        typer.run(submit)
