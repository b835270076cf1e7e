"""Is the answer right? Every run of every system is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import msgspec

_READ = {"jsonl": "read_json(?, format='newline_delimited')", "parquet": "read_parquet(?)"}
_GOT = "read_json(?, format='newline_delimited', columns={columns})"
_WINDOWS = """
with want as (
    select ad_id, (ts - ts % 60000) * 1000 as window_start,
      count(*) filter (type = 'impression') as impressions,
           count(*) filter (type = 'click') as clicks, sum(cost) as spend
    from {input} group by all
), got as (
    select ad_id, window_start, sum(impressions) as impressions, sum(clicks) as clicks,
      sum(spend) as spend,
           count(*) as times
    from {output} group by all
)
select count(*), count(*) filter (
    coalesce(times, 0) <> 1 or want.impressions is distinct from got.impressions
    or want.clicks is distinct from got.clicks or abs(want.spend - got.spend) > 1e-6
)
from want full join got using (ad_id, window_start)
"""
_COLUMNS = (
    # µs, euros
    "{ad_id: 'BIGINT', window_start: 'BIGINT', impressions: 'BIGINT', clicks: 'BIGINT', spend:"
    " 'DOUBLE'}"
)


@dataclass(frozen=True, slots=True)
class Check:
    """``wrong`` of ``rows`` are missing, surplus, said twice or different; ``example`` is one of
    them."""

    rows: int
    wrong: int
    example: str = ""

    @property
    def correct(self) -> bool:
        return self.wrong == 0


def check_windows(input_folder: Path, form: str, output: Path) -> Check:
    """Part A: every row of the JSON lines below ``output`` against DuckDB over the same input."""
    found = [str(path) for path in _results(output)]
    if not found:
        return Check(0, 1, f"no results in {output}")
    query = _WINDOWS.format(input=_READ[form], output=_GOT.format(columns=_COLUMNS))
    row = duckdb.connect().execute(query, [str(input_folder / f"*.{form}"), found]).fetchone()
    assert row is not None
    return Check(row[0], row[1])


def check_outliers(want: dict[str, float], output: Path) -> Check:
    """Part B: the ids told, each once, and the deviations to nine digits."""
    rows = [(str(row["event_id"]), float(row["z"])) for row in _rows(output)]
    got = dict(rows)
    wrong = [name for name in want.keys() | got.keys() if not _alike(want.get(name), got.get(name))]
    return Check(len(want), len(wrong) + len(rows) - len(got), wrong[0] if wrong else "")


def _alike(want: float | None, got: float | None) -> bool:
    return want is not None and got is not None and abs(want - got) <= 1e-9 * abs(want)


def _results(output: Path) -> list[Path]:
    """Files of results; what engines keep for themselves begins with a dot or an underscore, or
    lies below that."""
    hidden = (".", "_")
    return [
        path
        for path in sorted(output.rglob("*"))
        if path.is_file()
        and path.stat().st_size
        and not any(p.startswith(hidden) for p in path.relative_to(output).parts)
    ]


def _rows(output: Path) -> Iterable[Any]:
    for path in _results(output):
        for line in path.read_bytes().splitlines():
            yield msgspec.json.decode(line)
