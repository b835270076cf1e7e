"""The commands and their options. Their code is imported when they are called."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millwheel.adapters.processes.address import LOOPBACK
from millwheel.adapters.terminal import Terminal
from millwheel.tools.cli.arguments import AsJson, ServerAddress, ServerSecurity

asking = typer.Typer()
queries = typer.Typer(
    help="Named queries of a pipeline: set, remove and list them while it runs.",
    no_args_is_help=True,
)
asking.add_typer(queries, name="queries")
Root = Annotated[str, typer.Argument(metavar="ROOT", help="root of the run")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the query")]


@queries.command("set")
def queries_set(
    root: Root,
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME", help="a YAML file with `queries:`, or the name of one query"
        ),
    ],
    formula: Annotated[
        str, typer.Option(help="formula of the named query, such as clicks.spend / clicks.n")
    ] = "",
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="window, unless the question has another")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Add or change named queries. Workers answer them at once, and so do later runs on this
    root."""
    from millwheel.tools.cli.named_queries import set_queries

    set_queries(root, what, formula, window, Terminal(stderr=True), as_json)


@queries.command("remove")
def queries_remove(root: Root, name: Name, as_json: AsJson = False) -> None:
    """Remove a named query, also one of the pipeline's file."""
    from millwheel.tools.cli.named_queries import remove_query

    remove_query(root, name, Terminal(stderr=True), as_json)


@queries.command("list")
def queries_list(root: Root, as_json: AsJson = False) -> None:
    """Show the named queries of a root, with those that were set while it ran."""
    from millwheel.tools.cli.named_queries import list_queries

    list_queries(root, as_json, Terminal(width=None if sys.stdout.isatty() else 200))


@asking.command()
def serve(
    root: Root,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8080,
    listen: ServerAddress = LOOPBACK,
    security: ServerSecurity = "",
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="a site whose pages may ask, too; repeatable"),
    ] = None,
    pages: Annotated[
        str, typer.Option(metavar="FOLDER", help="also serve these files, such as a dashboard")
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="a further name by which clients call it; repeatable"),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="wait until there is a run on the root")
    ] = False,
) -> None:
    """Answer queries of a running pipeline by HTTP and JSON. Any number of these can run behind a
    balancer.

    Needs `pip install 'millwheel-spark[serve]'`, and a run with --query-port. Its page is at /docs.
    """
    from millwheel.tools.cli.serving import serve as begin

    begin(root, listen, port, security, cors or [], pages, allow_host or [], wait)
