"""The options below ``postgres:`` of a sink."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from millwheel.connectors.postgres.table import parts_of
from millwheel.core.expressions.language import compile_expression
from millwheel.sinks.base import flush_us
from millwheel.sinks.changes import Mode, mode_of

EXAMPLES = {
    "dsn": "dsn: postgresql://user:${secret:PG_PASSWORD}@db:5432/results",
    "table": "table: ctr",
    "mode": "mode: upsert",
    "by": "by: [ad_id, window_start]",
    "columns": "columns: {ad: ad_id, clicks: clicks}",
    "create": "create: {ad_id: bigint, window_start: timestamptz, clicks: bigint}",
    "mark": "mark: change",
    "flush": "flush: 100ms",
    "cut_records": "cut_records: 5000",
    "batches_table": "batches_table: millwheel_batches",
    "with_key": "with_key: true",
    "with_timestamp": "with_timestamp: true",
}
_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_ .]*(\(\d+(, *\d+)?\))?[a-z ]*(\[\])*")


class PostgresSinkOptions(msgspec.Struct, frozen=True):
    """``columns`` maps columns to expressions over the row; without it each field goes to the column of its name.
    ``create`` maps columns to types of PostgreSQL: the table is created if it does not exist. ``by`` names the columns
    that identify a row of ``mode: upsert``."""

    dsn: str
    table: str
    mode: str = "append"
    by: str | list[str] = []
    columns: dict[str, str] = {}
    create: dict[str, str] = {}
    mark: str = "change"
    flush: str | int = "100ms"
    cut_records: int = 5_000
    batches_table: str = "millwheel_batches"
    with_key: bool = False
    with_timestamp: bool = False

    def __post_init__(self) -> None:
        mode = mode_of(self.mode)
        flush_us(self.flush)
        if not 1 <= self.cut_records <= 50_000:
            raise ValueError(
                f"option 'cut_records' is {self.cut_records}; write how many rows a transaction has at most"
            )
        for name in ("table", "batches_table"):
            _check_table(name, getattr(self, name))
        if mode is Mode.UPSERT and not self.by:
            raise ValueError("option 'mode' is upsert, which needs the option 'by': the columns that identify a row")
        if self.by and mode is not Mode.UPSERT:
            raise ValueError(
                "option 'by' says which columns identify a row of mode: upsert; remove it, or set the mode"
            )
        for column, text in self.columns.items():
            try:
                compile_expression(text)
            except ValueError as ex:
                raise ValueError(f"option 'columns': {column}: {ex}") from ex
        for column, kind in self.create.items():
            if not _TYPE.fullmatch(kind):
                raise ValueError(f"option 'create': {column} is {kind!r}; write a type of PostgreSQL, such as bigint")
        self._check_identity()

    def _check_identity(self) -> None:
        for option in ("columns", "create"):
            known = getattr(self, option)
            if known and (missing := [name for name in identity_of(self) if name not in known]):
                raise ValueError(f"option 'by' names {missing[0]!r}, which is no column of option {option!r}")


def identity_of(options: PostgresSinkOptions) -> Sequence[str]:
    """The columns of ``by``."""
    return [options.by] if isinstance(options.by, str) else options.by


def _check_table(option: str, name: str) -> None:
    try:
        sound = "\0" not in name and bool(parts_of(name))
    except ValueError:
        sound = False
    if not sound:
        raise ValueError(
            f"option {option!r} is {name!r}; write the name of a table, such as ctr or billing.ctr, and one that has "
            "a dot itself in double quotes: '\"my.table\"'"
        )
