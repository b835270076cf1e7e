"""One step beside the plain pipeline: what each kind of window, key, aggregate and input costs, as
a share of its rate.

    python -m bench cliff [--rounds 3] [--records 1000000] [--only "ids for 1h" sessions]

All runs of a round follow each other. The clock runs from the first look at the input to the last
byte of the results (``contest.py``), so the start of processes is outside. Every result is compared
with DuckDB's over the same input, and a run with one that is wrong ends the program. Prints one
JSON line per way: the median rate, the median share of the plain rate of the same round, what
``millwheel explain`` says of the computation, and how much was written: a join reads one file
twice, and writes both records of each pair, where others write a row for each key and window.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb

from bench.contest import execute
from bench.contestants import Job, ours
from bench.inputs import Input, ads
from bench.throughput import FILES
from millwheel.connect.python_objects import load_object
from millwheel.core.pipeline.graph import build_graph
from millwheel.language.spec import load_pipeline
from millwheel.tools.explain.forms import forms_of

_TIMEOUT_S = 200.0
_FIELDS = "fields: {event_id: str, client_id: int, uid: int, type: str, cost: float, ts: int}"
_STREAM = """
    source: {files: {path: "${input}/FILE", format: "${form}"}}
    timestamp: {field: ts, unit: ms}
    watermark: {max_delay: 10s}"""
_MINUTE = "{tumbling: 1m}"


@dataclass(frozen=True, slots=True)
class Step:
    """One way to deviate from the plain pipeline, and how its rows are checked: ``query`` counts
    wrong rows, of the tables ``records`` (the input, with ``t`` in µs) and ``rows`` (the
    results)."""

    query: str
    window: str = _MINUTE
    key: str = "client_id"
    spend: str = "{sum: cost}"
    more: str = ""
    stream: str = ""
    fields: str = _FIELDS


def _grouped(
    spend: str, key: str = "client_id", near: str = "abs(a.spend - b.spend) < 1e-6"
) -> str:
    """Compare tumbling minutes with the same by SQL."""
    on = " and ".join(f"a.{name} = b.{name}" for name in key.split(", "))
    return f"""
with a as (select {key}, t - t % 60000000 as s, count(*) as n,
  {spend} as spend from records group by {key}, s)
select count(*) from a full join rows b on {on} and a.s = b.window_start
where a.n is distinct from b.n or not coalesce({near}, false)"""


_SLIDING = """
with a as (
    select client_id, t - t % 60000000 - d * 60000000 as s, count(*) as n, sum(cost) as spend
    from records, range(2) as r(d) group by client_id, s
)
select count(*) from a full join rows b on a.client_id = b.client_id and a.s = b.window_start
where a.n is distinct from b.n or not coalesce(abs(a.spend - b.spend) < 1e-6, false)"""
_SESSIONS = """
with marked as (
    select client_id, t, cost,
      coalesce(t - lag(t) over (partition by client_id order by t) >= 10000000, true) as begins
    from records
), numbered as (
    select *, sum(begins::int) over (partition by client_id order by t rows unbounded preceding) as
      number from marked
), a as (
    select client_id, min(t) as s, count(*) as n,
      sum(cost) as spend from numbered group by client_id, number
)
select count(*) from a full join rows b on a.client_id = b.client_id and a.s = b.window_start
where a.n is distinct from b.n or not coalesce(abs(a.spend - b.spend) < 1e-6, false)"""
_COUNTS = """
with a as (
    select client_id, count(*) as n, sum(cost) as spend,
      ceil(count(*) / 100) as windows from records group by all
), b as (
    select client_id, sum(n) as n, sum(spend) as spend, count(*) as windows,
      count(*) filter (n <> 100) as part
    from rows group by all
)
select count(*) from a full join b using (client_id)
where a.n is distinct from b.n or a.windows is distinct from b.windows or b.part > 1
or not coalesce(abs(a.spend - b.spend) < 1e-6, false)"""
_KEY_WINDOWS = """
with steps as (
    select client_id, t - t % 10000000 + 10000000 as e, count(*) as n, sum(cost) as spend
    from records group by client_id, e
), ends as (
    select distinct client_id, e + d * 10000000 as e from steps, range(7) as r(d)
), a as (
    select ends.client_id, ends.e, coalesce(sum(n), 0) as n, coalesce(sum(spend), 0) as spend
    from ends left join steps
    on steps.client_id = ends.client_id and steps.e <= ends.e and steps.e > ends.e - 60000000 group
      by all
)
select (select count(*) from rows b left join a on a.client_id = b.client_id and a.e = b.window_end
        where a.n is distinct from b.n or not coalesce(abs(a.spend - b.spend) < 1e-6, false))
     + (select count(*) from a left join a p on a.client_id = p.client_id and a.e = p.e + 10000000
        left join rows b on a.client_id = b.client_id and a.e = b.window_end
        where b.n is null and (a.n <> p.n or abs(a.spend - p.spend) > 1e-6))"""
_MEDIAN = "list_sort(list(cost))"
_NEAR_MEDIAN = (
    "b.spend between 0.97 * a.spend[greatest(1, (a.n - 1) // 2)] and 1.03 * a.spend[least(a.n, a.n"
    " // 2 + 2)]"
)
_JOINED = """
with a as (select client_id, t - t % 60000000 as s, event_id from records)
select count(*) from a full join rows b on a.event_id = b.event_id
where a.event_id is null or b.event_id is null or a.s <> b.window_start"""

_PASSED = """
select count(*) from (select event_id, client_id from records) a full join rows b using (event_id)
where a.client_id is distinct from b.client_id"""
_LATEST = """
with versions as (select distinct client_id, t from records)
select count(*) from (
  select event_id, max(v.t) as t from records a
  join versions v on v.client_id = a.client_id and v.t <= a.t group by event_id) a
full join rows b using (event_id) where a.t is distinct from b.others.ts * 1000"""

PLAIN = _grouped("sum(cost)")
STEPS = {
    "plain": Step(PLAIN),
    "no `fields` declared": Step(PLAIN, fields=""),
    "`stddev`": Step(
        _grouped(
            "stddev_samp(cost)", near="abs(coalesce(a.spend, 0) - coalesce(b.spend, 0)) < 1e-6"
        ),
        spend="{stddev: cost}",
    ),
    "`count_distinct`": Step(
        _grouped("count(distinct uid)", near="a.spend = b.spend"), spend="{count_distinct: uid}"
    ),
    "`quantile`": Step(_grouped(_MEDIAN, near=_NEAR_MEDIAN), spend="{quantile: cost, q: 0.5}"),
    "a key of two fields": Step(_grouped("sum(cost)", "client_id, type"), key="[client_id, type]"),
    "sliding, two windows a record": Step(_SLIDING, window="{sliding: 2m, every: 1m}"),
    "sessions": Step(_SESSIONS, window="{session: 10s}"),
    "allowed lateness": Step(PLAIN, more="allowed_lateness: 1m, accumulation: accumulating, "),
    "late records aside": Step(PLAIN, more="late: {side: behind}, "),
    "`approx_count_distinct`": Step(
        _grouped(
            "count(distinct uid)", near="b.spend between 0.9 * a.spend - 1 and 1.1 * a.spend + 1"
        ),
        spend="{approx_count_distinct: uid}",
    ),
    "ids for 1h": Step(PLAIN, stream="id: {field: event_id, horizon: 1h}"),
    "a calculation": Step(_grouped("sum(cost * 3 + uid)"), spend="{sum: cost * 3 + uid}"),
    "windows of 100 records": Step(_COUNTS, window="{count: 100}"),
    "key windows, 1m every 10s": Step(
        _KEY_WINDOWS, window="{sliding: 1m, every: 10s, emit: changes}"
    ),
    "a join, one partner each": Step(_JOINED),
    "`order_by`, records as they are": Step(_PASSED),
    "`enrich`, as of its time": Step(_LATEST),
}
_JOIN = "a join, one partner each"
_ORDER = "`order_by`, records as they are"
_ENRICH = "`enrich`, as of its time"
_ONE_FILE = frozenset({_JOIN, _ENRICH})
"""Ways that read one file as both of their streams."""


def pipeline_of(name: str) -> str:
    """The pipeline of a way."""
    step = STEPS[name]
    file = "events-000.jsonl" if name in _ONE_FILE else "*.jsonl"
    more = "".join(f"\n    {line}" for line in (step.stream, step.fields) if line)
    events = f"  events:{_STREAM.replace('FILE', file)}{more}\n"
    others = f"  others:{_STREAM.replace('FILE', file)}{more}\n" if name in _ONE_FILE else ""
    return f"""pipeline: cliff
streams:
{events}{others}computations:
  made: {{{_made(name, step)}, output: made}}
sinks:
  made: {{files: {{path: "${{output}}", format: jsonl}}}}
"""


def _made(name: str, step: Step) -> str:
    """The computation, without its output."""
    if name == _JOIN:
        inputs = "{events: {key: event_id}, others: {key: event_id}}"
        return f"input: {inputs}, window: {_MINUTE}, join: inner"
    if name == _ENRICH:
        inputs = "{events: {key: client_id}, others: {key: client_id}}"
        return f"input: {inputs}, enrich: {{with: others}}"
    if name == _ORDER:
        fields = "{event_id: event_id, client_id: client_id}"
        return f"input: {{events: {{key: client_id}}}}, map: {fields}, order_by: timestamp"
    return (
        f"input: {{events: {{key: {step.key}}}}}, window: {step.window}, {step.more}"
        f"aggregate: {{n: count, spend: {step.spend}}}"
    )


def form_of(path: Path) -> str:
    """What ``millwheel explain`` says of the computation."""
    spec = load_pipeline(path, {"input": "in", "output": "out", "form": "jsonl"})
    return forms_of(spec, build_graph(spec), lambda name: load_object(name, spec.folder))["made"]


def measure(folder: Path, name: str, load: Input) -> tuple[float, dict[str, object]]:
    """Records a second of one run, checked; and what is said of it."""
    work = folder / "run"
    work.mkdir()
    path = work / "cliff.yaml"
    path.write_text(pipeline_of(name))
    form = form_of(path)
    outcome = execute(
        ours(str(path.with_suffix("")), 2)(Job(work, load.of("jsonl"), "jsonl", _TIMEOUT_S))
    )
    if outcome.seconds is None or outcome.error:
        sys.exit(f"{name}: {outcome.error or outcome.tail}")
    file = "events-000.jsonl" if name in _ONE_FILE else "*.jsonl"
    with duckdb.connect() as connection:
        connection.execute(
            "create view records as select *, ts * 1000 as t from"
            f" read_json('{load.of('jsonl')}/{file}', format='newline_delimited')"
        )
        connection.execute(
            f"create view rows as select * from read_json('{work}/out/*.jsonl',"
            " format='newline_delimited')"
        )
        (wrong,) = connection.execute(STEPS[name].query).fetchall()[0]
        (records,) = connection.execute("select count(*) from records").fetchall()[0]
        (results,) = connection.execute("select count(*) from rows").fetchall()[0]
    written = sum(path.stat().st_size for path in (work / "out").glob("*.jsonl"))
    if wrong:
        sys.exit(f"{name}: {wrong} rows are not those of DuckDB")
    shutil.rmtree(work)
    read = records * (2 if name in _ONE_FILE else 1)
    told = {"form": form, "read": read, "results": results, "written_mb": round(written / 1e6, 1)}
    return read / outcome.seconds, told


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench cliff",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument(
        "--only", nargs="*", default=[], help="some of the ways; plain is always among them"
    )
    arguments = parser.parse_args()
    chosen = ["plain", *(name for name in arguments.only if name != "plain")]
    names = chosen if arguments.only else list(STEPS)
    if unknown := set(names) - STEPS.keys():
        parser.error(f"no such ways: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    load = ads(arguments.records, FILES)
    rates: dict[str, list[float]] = {name: [] for name in names}
    about = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            for name in names:
                rate, about[name] = measure(Path(folder), name, load)
                rates[name].append(rate)
    for name, found in rates.items():
        shares = [rate / plain for rate, plain in zip(found, rates["plain"], strict=True)]
        told = {
            "records_per_s": round(statistics.median(found)),
            "of_plain": round(statistics.median(shares), 2),
        }
        print(
            json.dumps({"way": name, **told, "least": round(min(shares), 2), **about[name]}),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
