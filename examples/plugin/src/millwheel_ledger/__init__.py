"""Ledgers: files of SQLite with one table, ``entries(id integer primary key, account text, amount
integer)``.

source: {ledger: {path: in.db}}
sinks: {booked: {ledger: {path: out.db}}}
"""

from __future__ import annotations

import os
from typing import Any

from millwheel.plugins import Sink, Source
from millwheel_ledger.sink import LedgerSink
from millwheel_ledger.source import LedgerSource


def build_sink(options: dict[str, Any], folder: str) -> Sink:
    """The entry point of ``millwheel.sinks``. Raises ValueError, with a sentence, for options that
    cannot work."""
    return LedgerSink(_path(options, folder))


def build_source(options: dict[str, Any], folder: str) -> Source:
    """The entry point of ``millwheel.sources``."""
    return LedgerSource(_path(options, folder))


def _path(options: dict[str, Any], folder: str) -> str:
    if set(options) != {"path"}:
        raise ValueError(
            "a ledger has the option 'path', and no other; write for example path: ledger.db"
        )
    return os.path.join(folder, str(options["path"]))
