"""``millwheel letters`` and ``millwheel replay``: records that could not be processed, and their
replay."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.control.roots.attach import is_driven
from millwheel.control.roots.root import read_run
from millwheel.control.roots.shipping import load_shipped
from millwheel.engine.letters import (
    Letter,
    LetterGroup,
    ask,
    asked_for,
    grouped,
    letters_folder,
    read_letters,
)
from millwheel.errors import SetupError
from millwheel.tools.cli.arguments import chosen_root

_EXAMPLE = 200  # characters of an example that are shown
_WHAT = {
    "timer": "timers",
    "window": "windows",
    "production": "results that were too large",
    "injection": "injected records",
    "": "an earlier version",
}


def letters(address: str, computation: str, reason: str, as_json: bool, console: Console) -> None:
    """Print the dead letters of a root by computation and reason."""
    root = chosen_root(address)
    chosen = _chosen(root, computation, reason)
    groups = grouped(chosen, asked_for(_orders(address, root)))
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode([_plain(group) for group in groups]) + b"\n")
        return
    if not groups:
        console.print(f"No dead letters in {root}.", highlight=False, soft_wrap=True)
    for group in groups:
        for line in _lines(group):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def replay(
    address: str,
    computation: str,
    reason: str,
    limit: int | None,
    console: Console,
    as_json: bool = False,
) -> None:
    """Request a replay of dead letters, and print when it will happen."""
    root = chosen_root(address)
    chosen = _chosen(root, computation, reason)
    orders = _orders(address, root)
    before = asked_for(orders)
    count = ask(root, orders, chosen, limit)
    driven, rest = is_driven(root), list(left_out(chosen, before, count))
    if as_json:
        document = {"root": str(root), "replayed": count, "running": driven, "left_out": rest}
        sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
        return
    when = "now" if driven else "when the pipeline is run on this root again"
    word = "letter is" if count == 1 else "letters are"
    console.print(
        f"{count:,} dead {word} tried again, {when}.", markup=False, highlight=False, soft_wrap=True
    )
    for line in rest:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def left_out(chosen: Sequence[Letter], before: Collection[str], count: int) -> Iterator[str]:
    """Sentences about those letters of ``chosen`` that are not among the ``count`` replayed ones,
    with the reason."""
    never = Counter(_WHAT.get(letter.what, "others") for letter in chosen if not letter.again)
    if never:
        kinds = ", ".join(f"{many:,} of {what}" for what, many in sorted(never.items()))
        yield f"{never.total():,} cannot be tried again: {kinds}."
    repeated = sum(bool(letter.again) and letter.id in before for letter in chosen)
    if repeated:
        yield f"{repeated:,} were asked for before."
    if over := len(chosen) - never.total() - repeated - count:
        yield f"{over:,} are over the limit."


def _chosen(root: Path, computation: str, reason: str) -> list[Letter]:
    if read_run(root) is None:
        raise SetupError(f"{root} is not the root of a run: use the --root of its `millwheel run`")
    folder = letters_folder(load_shipped(str(root)), root)
    return [letter for letter in read_letters(folder) if letter.matches(computation, reason)]


def _orders(address: str, root: Path) -> ReplayOrders:
    return ReplayOrders(open_space(address if in_bucket(address) else str(root)))


def _lines(group: LetterGroup) -> list[str]:
    example = group.example
    replayed = f", {group.replayed:,} of them tried again" if group.replayed else ""
    word = "letter" if group.count == 1 else "letters"
    about = f"key {example.key!r}, value {example.value!r}"
    return [
        f"{group.computation}: {group.count:,} {word}{replayed}: {group.kind}",
        f"    written {_time(group.first_s)} to {_time(group.last_s)}; for example {example.id}:",
        f"    {example.reason[:_EXAMPLE]}",
        f"    {about if len(about) <= _EXAMPLE else about[:_EXAMPLE] + '…'}",
    ]


def _time(seconds: float) -> str:
    return (
        datetime.fromtimestamp(seconds, timezone.utc)
        .isoformat(sep=" ", timespec="seconds")
        .replace("+00:00", "Z")
    )


def _plain(group: LetterGroup) -> dict[str, Any]:
    return {
        "computation": group.computation,
        "kind": group.kind,
        "count": group.count,
        "replayed": group.replayed,
        "first": _time(group.first_s),
        "last": _time(group.last_s),
        "example": msgspec.to_builtins(group.example),
    }
