"""Prints a trial on a terminal: a small table for each stage, and the failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from millwheel.tools.dev.stages import Stage, Trial

_COLUMNS = 10  # of a table; further fields are not shown
_WIDEST = 40  # characters of a cell


def shown(trial: Trial) -> RenderableType:
    """All stages, then the failures."""
    parts: list[RenderableType] = []
    for stage in trial.stages:
        parts += [_title(stage), _table(stage.rows), Text()]
    parts += [Text(f"! {failure}", style="red") for failure in trial.failures]
    return Group(*parts)


def _title(stage: Stage) -> Text:
    noun = "record" if stage.count == 1 else "records"
    return Text.assemble(
        (stage.stream, "bold green"), f"  {stage.count:,} {noun}  ", (stage.made_by, "dim")
    )


def _table(rows: Sequence[Any]) -> Table:
    maps = [row if isinstance(row, Mapping) else {"value": row} for row in rows]
    names = list(dict.fromkeys(name for row in maps for name in row))[:_COLUMNS]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(Text(str(name)), no_wrap=True)
    for row in maps:
        table.add_row(*(Text(_cell(row[name]) if name in row else "") for name in names))
    return table


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def as_line(trial: Trial | str) -> str:
    """A trial, or the reason why there is none, as one line of JSON. Values without a JSON type
    appear in Python's notation."""
    document = (
        {"problem": trial}
        if isinstance(trial, str)
        else {"stages": trial.stages, "failures": trial.failures}
    )
    return msgspec.json.encode(document, enc_hook=repr).decode()


def print_trial(trial: Trial, console: Console) -> None:
    """Print it."""
    console.print(shown(trial))
