"""The options below ``postgres:`` of a sink."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from millwheel.connect.connectors.postgres.table import parts_of
from millwheel.connect.options import Flush, Mark, Option, WithKey, WithTimestamp
from millwheel.connect.own_functions import expression_of
from millwheel.connect.sinks.base import flush_us
from millwheel.connect.sinks.result_rows import MODES, Mode

_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_ .]*(\(\d+(, *\d+)?\))?[a-z ]*(\[\])*")


class PostgresSinkOptions(msgspec.Struct, frozen=True):
    """Rows of a table of PostgreSQL."""

    dsn: Annotated[
        str,
        Option(
            "postgresql://user:${secret:PG_PASSWORD}@db:5432/results",
            text=(
                "a connection string of libpq, as URL or as `host=… user=…`. Write passwords"
                " as `${secret:NAME}`: they appear in no log, root or error"
            ),
        ),
    ]
    table: Annotated[
        str,
        Option(
            "ctr",
            text=(
                "with its schema if that is not in the search path: `billing.ctr`. A name"
                " that has a dot itself in double quotes: `'\"my.table\"'`. A view needs to take"
                " rows"
            ),
        ),
    ]
    mode: Annotated[
        str,
        Option(
            "upsert",
            MODES,
            text=(
                "`append`: each record is a row. `upsert`: the table has the latest row of"
                " each `by`. `changelog`: each record is a row, with `+` or `-` in the column"
                " `mark`"
            ),
        ),
    ] = "append"
    by: Annotated[
        str | list[str],
        Option(
            "[ad_id, window_start]",
            text=(
                "the columns that identify a row of `upsert`. The table needs a primary key"
                " or unique index on exactly these"
            ),
            default="required for `upsert`",
        ),
    ] = []
    columns: Annotated[
        dict[str, str],
        Option(
            "{ad: ad_id, clicks: clicks}",
            text="maps each column to an [expression](expressions.md) over the row",
            default="each field goes to the column of its name",
        ),
    ] = {}
    create: Annotated[
        dict[str, str],
        Option(
            "{ad_id: bigint, window_start: timestamptz, clicks: bigint}",
            text=(
                "maps each column to its type: if the table does not exist, it is created,"
                " with `by` as its primary key"
            ),
        ),
    ] = {}
    mark: Mark = "change"
    flush: Flush = "100ms"
    cut_records: Annotated[int, Option("5000", text="the most rows of a transaction")] = 5_000
    batches_table: Annotated[
        str,
        Option(
            "millwheel_batches",
            text="the table of numbers and tokens, created if it does not exist",
        ),
    ] = "millwheel_batches"
    with_key: WithKey = False
    with_timestamp: WithTimestamp = False

    def __post_init__(self) -> None:
        mode = Mode(self.mode)
        flush_us(self.flush)
        if not 1 <= self.cut_records <= 50_000:
            raise ValueError(
                f"option 'cut_records' is {self.cut_records}; write how many rows a transaction has"
                " at most"
            )
        for name in ("table", "batches_table"):
            _check_table(name, getattr(self, name))
        if mode is Mode.UPSERT and not self.by:
            raise ValueError(
                "option 'mode' is upsert, which needs the option 'by': the columns that identify"
                " a row"
            )
        if self.by and mode is not Mode.UPSERT:
            raise ValueError(
                "option 'by' says which columns identify a row of mode: upsert; remove it, or set"
                " the mode"
            )
        for column, text in self.columns.items():
            try:
                expression_of(text)
            except ValueError as ex:
                raise ValueError(f"option 'columns': {column}: {ex}") from ex
        for column, kind in self.create.items():
            if not _TYPE.fullmatch(kind):
                raise ValueError(
                    f"option 'create': {column} is {kind!r}; write a type of PostgreSQL, such as"
                    " bigint"
                )
        self._check_identity()

    def _check_identity(self) -> None:
        for option in ("columns", "create"):
            columns = getattr(self, option)
            if columns and (missing := [name for name in identity_of(self) if name not in columns]):
                raise ValueError(
                    f"option 'by' names {missing[0]!r}, which is not a column of option {option!r}"
                )


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
            f"option {option!r} is {name!r}; write the name of a table, such as ctr or billing.ctr,"
            " and one that has a dot itself in double quotes: '\"my.table\"'"
        )
