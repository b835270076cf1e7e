"""Arguments and options of several commands, and the root that a command uses when it was called
without one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from millwheel.adapters.processes.logs import LogFormat
from millwheel.errors import SetupError
from millwheel.launch.head_start import SECRETS_VARIABLE

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
    # not above: options are read even for commands that need no root
    from millwheel.control.roots.attach import find_root

    root = find_root(address)
    if not address:
        short_path = root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root
        sys.stderr.write(f"Using the run in {short_path}\n")
    return root


Workers = Annotated[int, typer.Option(min=1, help="worker processes; each costs about 150 MB")]
Spares = Annotated[
    str,
    typer.Option(
        metavar="N|auto",
        help=(
            "extra workers that take over at once when others die; `auto`: as many as it takes that"
            " any one host may die (docs/scaling.md)"
        ),
    ),
]
Balance = Annotated[
    bool,
    typer.Option(
        "--balance/--no-balance",
        help=(
            "move, split and merge shards by their measured load, and relieve slow workers; without"
            " it all wait for the slowest (docs/scaling.md)"
        ),
    ),
]
UntilCaughtUp = Annotated[
    bool,
    typer.Option(
        "--until-caught-up",
        help=(
            "end once all is processed that followed files and topics have now; state, open windows"
            " and watermarks are kept, and the next run on the root goes on"
        ),
    ),
]
Confs = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="a setting of Spark, such as spark.executor.memoryOverhead=2g",
    ),
]
RootFolder = Annotated[
    str,
    typer.Option(
        metavar="FOLDER", help="state and journals, shared by all workers; default .millwheel/NAME"
    ),
]
ZooKeeper = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT/CHROOT",
        help="your ZooKeeper; `embedded` starts one here, which is the default with --spark-master",
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help=(
            "address that all processes listen on: this machine's loopback, or, with --security,"
            " `auto` for the address that other machines use"
        ),
    ),
]
SecurityFolder = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        envvar="MILLWHEEL_SECURITY",
        help=(
            "certificates and token that all processes of the run use (`millwheel certs` makes a"
            " set); needed with --listen other than the loopback"
        ),
    ),
]
ServerAddress = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS", help="address to listen on; other than the loopback needs --security"
    ),
]
"""Where `ui` and `serve` listen."""
ServerSecurity = Annotated[
    str, typer.Option(metavar="FOLDER", help="certificates and token; default: those of the run")
]
Open = Annotated[
    bool,
    typer.Option(
        "--open",
        help="ask for no token: everybody on this machine can read, change and stop the run",
    ),
]
SecretsFolder = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        envvar=SECRETS_VARIABLE,
        help=(
            "a file NAME for each ${secret:NAME} of the pipeline, on every machine; secrets without"
            " a file are read from the environment"
        ),
    ),
]
FromSavepoint = Annotated[
    str, typer.Option(metavar="FOLDER", help="start the new root with the state of this savepoint")
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="remove the contents of the root and the results that belong to it; begin anew",
    ),
]
Group = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=(
            "a group of this machine that may read the root, and so look at the run and ask it;"
            " default: you alone"
        ),
    ),
]
Timeout = Annotated[
    str, typer.Option(metavar="DURATION", help="give up after this; the pipeline then continues")
]
SummaryFile = Annotated[
    str, typer.Option(metavar="FILE.json", help="write the summary there, as JSON")
]
AnyLogFormat = Annotated[
    LogFormat,
    typer.Option(
        help="logs of all processes as text for people, or as JSON lines for other programs"
    ),
]
QueryPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help=(
            "port of the first worker for queries by the Redis protocol; the others take free ones"
            " (docs/queries.md)"
        ),
    ),
]
UiPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        min=1,
        max=65535,
        help="also show the run as a page there; needs the extra `ui` (docs/ui.md)",
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="progress with a line for each node")
]
MetricsPort = Annotated[
    int,
    typer.Option(
        min=0,
        max=65535,
        help=(
            "port of the driver for the metrics of all processes, in Prometheus' format; 0 takes a"
            " free one, which metrics.json in the root names"
        ),
    ),
]

MetricsListen = Annotated[
    str,
    typer.Option(
        metavar="HOST",
        help=(
            "the address for --metrics-port and the probes, where it is not that of --listen; off"
            " the loopback it takes --security (docs/metrics.md)"
        ),
    ),
]
