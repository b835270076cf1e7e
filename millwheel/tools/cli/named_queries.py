"""``millwheel queries``: named queries in the root, and whether the workers have taken them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from uuid import uuid4

import msgspec
from rich.console import Console

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.adapters.spaces.root_notes import QueryTable
from millwheel.control.roots.attach import LiveMembers, attach, connected, find_root, is_driven
from millwheel.control.roots.root import read_run
from millwheel.control.roots.shipping import load_shipped
from millwheel.core.pipeline.query_changes import QUERIES_ROLE, QueryChanges, QueryRow
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.engine.queries.link import LinkClosed, Links, json_of, packed, secured_links
from millwheel.engine.queries.named_queries import merged
from millwheel.engine.queries.names import query_document
from millwheel.errors import SetupError
from millwheel.language.spec.pipelines import load_queries, one_query
from millwheel.tools.cli.arguments import chosen_root
from millwheel.tools.cli.status import write_json

_APPLIED_S = 10.0  # for workers to follow a change: they look at once, and at the latest after this
_PAUSE_S = 0.02  # between two looks whether they do: shorter than anybody notices
_ALL_APPLIED = "All workers answer accordingly"
_NOTHING = "The run answers no queries: start it with --query-port"


def set_queries(
    address: str, what: str, formula: str, window: str, console: Console, as_json: bool = False
) -> None:
    """Set the queries of a file, or one by its formula. Raises PipelineError for an invalid
    query."""
    spec, table = _opened(address)
    if formula:
        queries = one_query(what, formula, window, spec)
    elif window or not Path(what).exists():
        raise SetupError(
            f"Give a formula for {what}: --formula 'clicks.spend / clicks.n'; or a file with"
            " `queries:`"
        )
    else:
        queries = load_queries(what, spec)
    changes = table.change([QueryRow.of(each) for each in queries])
    _report(address, "Set", [each.name for each in queries], changes, console, as_json)


def remove_query(address: str, name: str, console: Console, as_json: bool = False) -> None:
    """Remove one. Raises SetupError when there is none of that name."""
    spec, table = _opened(address)
    there = merged(spec.queries, table.read())
    if name not in there:
        raise SetupError(
            f"There is no query {name!r}; there are: {', '.join(sorted(there)) or 'none'}"
        )
    _report(address, "Removed", [name], table.change([QueryRow(name)]), console, as_json)


def list_queries(address: str, as_json: bool, console: Console) -> None:
    """Print them."""
    spec, table = _opened(address)
    documents = {
        name: query_document(each)
        for name, each in sorted(merged(spec.queries, table.read()).items())
    }
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(documents) + b"\n")
        return
    for name, each in documents.items():
        window = f", of {each['window']}" if each["window"] else ""
        console.print(
            f"{name}: {each['formula']}{window}", markup=False, highlight=False, soft_wrap=True
        )
    if not documents:
        console.print("There are no named queries.", highlight=False)


def _opened(address: str) -> tuple[PipelineSpec, QueryTable]:
    root = chosen_root(address)
    if read_run(root) is None:
        raise SetupError(f"{root} is not the root of a run: use the --root of its `millwheel run`")
    return load_shipped(str(root)), QueryTable(
        open_space(address if in_bucket(address) else str(root))
    )


def _report(
    address: str,
    done: str,
    names: list[str],
    changes: QueryChanges,
    console: Console,
    as_json: bool,
) -> None:
    root = find_root(address)
    when = _wait(root, changes.number) if is_driven(root) else "The next run on this root has that"
    if as_json:
        return write_json(
            {
                "change": done.lower(),
                "queries": names,
                "known": when == _ALL_APPLIED,
                "sentence": when,
            }
        )
    return console.print(
        f"{done} {_list(names)}. {when}.", markup=False, highlight=False, soft_wrap=True
    )


def _wait(root: Path, number: int) -> str:
    """Notify the workers, and wait until they have taken the change."""
    run = attach(root)
    with connected(run) as coordination:
        coordination.join(QUERIES_ROLE, f"change-{uuid4().hex}", b"")
        members = LiveMembers(coordination, "workers")
        addresses = _addresses(members.some())
        if not addresses:
            return _NOTHING
        behind = asyncio.run(
            _behind(addresses, number, secured_links(load_security(run.security, "client")))
        )
    if behind:
        return f"{_list(behind)} did not confirm it within {_APPLIED_S:.0f} s; they look every 10 s"
    return _ALL_APPLIED


def _addresses(members: Mapping[str, bytes]) -> list[str]:
    return [address for data in members.values() if (address := json.loads(data).get("queries"))]


async def _behind(addresses: Sequence[str], number: int, links: Links) -> list[str]:
    """The workers that have not taken the change in time."""
    end_s, waiting = monotonic() + _APPLIED_S, list(addresses)
    while waiting and monotonic() < end_s:
        for address in list(waiting):
            with suppress(LinkClosed, asyncio.TimeoutError):
                (reply,) = await asyncio.wait_for(
                    links.call(address, [packed("MW.INDICATORS")]), 1.0
                )
                if isinstance(reply, bytes) and json_of(reply)["number"] >= number:
                    waiting.remove(address)
        await asyncio.sleep(_PAUSE_S if waiting else 0)
    links.close()
    return waiting


def _list(words: Sequence[str]) -> str:
    return ", ".join(words) or "nothing"
