"""Generates ad events, runs the ads pipeline over them and compares every row with DuckDB.

python examples/ads/check.py [--records N] [--files N] [--launcher spark|processes] [--fresh]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb

HERE = Path(__file__).parent
OUT = Path("out") / "ads"

# Late: more than 10 s behind what its own file has brought before. Of the others, each event id
# counts once.
QUERY = """
with read as (
    select *, row_number() over () as place from read_json(?, format='newline_delimited',
      filename=true)
), judged as (
    select *, max(ts) over (
        partition by filename order by place rows between unbounded preceding and 1 preceding
    ) as highest from read
), kept as (
    select * from judged where highest is null or ts >= highest - 10000
    qualify row_number() over (partition by event_id order by place) = 1
)
select ad_id, (ts - ts % 60000) * 1000 as window_start,
  count(*) filter (type = 'impression') as impressions,
       count(*) filter (type = 'click') as clicks, round(sum(cost), 6) as spend
from kept group by all order by all
"""

GOT = (
    "select ad_id, window_start, impressions, clicks, round(spend, 6) as spend from read_json(?)"
    " order by all"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument(
        "--files", type=int, default=1, help="over how many files the events are spread"
    )
    parser.add_argument("--launcher", default="processes")
    parser.add_argument(
        "--fresh", action="store_true", help="forget what an earlier run left in out/ads"
    )
    given = parser.parse_args()
    if given.fresh:
        shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    one = given.files == 1
    made = OUT / (
        f"events-{given.records}.jsonl" if one else f"events-{given.records}-{given.files}"
    )
    if not made.exists():
        generate = [
            sys.executable,
            str(HERE / "generate.py"),
            "--records",
            str(given.records),
            "--out",
            str(made),
        ]
        generate += ["--files", str(given.files), "--late", "0.002", "--duplicates", "0.01"]
        subprocess.run(generate, check=True)
    events = made if one else made / "*.jsonl"
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(HERE / "pipeline.yaml"),
        "--launcher",
        given.launcher,
    ]
    command += ["--set", f"input={events}", "--set", f"output={OUT}", "--root", str(OUT / "root")]
    if subprocess.run([*command, "--summary", str(OUT / "summary.json")], check=False).returncode:
        return 1
    return compare(events, OUT / "ctr")


def compare(events: Path, ctr: Path) -> int:
    """0 when the rows below ``ctr`` are those of DuckDB over ``events``."""
    duckdb.execute("set threads = 1")  # the order of lines decides what is late
    want = duckdb.execute(QUERY, [str(events)]).fetchall()
    got = duckdb.execute(GOT, [str(ctr / "*.jsonl")]).fetchall()
    if want != got:
        different = sorted(set(want) ^ set(got))
        print(
            f"{len(different)} of {len(want)} rows differ from DuckDB's, for example"
            f" {different[:3]}"
        )
        return 1
    print(f"All {len(got)} rows of {ctr} equal DuckDB's over the same events.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
