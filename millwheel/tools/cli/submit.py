"""``millwheel run`` inside a Spark application, for ``spark-submit``. The submission names the
Spark master."""

from __future__ import annotations

import os

import typer

from millwheel.adapters.processes.address import LOOPBACK
from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.processes.logs import LogFormat
from millwheel.adapters.terminal import Terminal
from millwheel.launch.settings import RunSettings, parse_sets, parse_spares
from millwheel.tools.cli.errors import sentences
from millwheel.tools.cli.look.arguments import Pipeline, Sets
from millwheel.tools.cli.run_options import (
    AnyLogFormat,
    Balance,
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


def _run(
    pipeline: Pipeline,
    sets: Sets = None,
    workers: Workers = 2,
    spares: Spares = "0",
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
    """Run a pipeline in the executors of this Spark application, one long task per worker."""
    from millwheel.launch.driver import Driver
    from millwheel.launch.head_start import children_for

    settings = RunSettings(
        pipeline=pipeline,
        params=parse_sets(sets or []),
        workers=workers,
        spares=parse_spares(spares),
        submitted=True,
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
        raise typer.Exit(Driver(settings, Terminal(stderr=True), children).run())


def main() -> None:
    """Entry point of ``deploy/spark_submit.py``."""
    begin_process()
    with sentences():
        typer.run(_run)
