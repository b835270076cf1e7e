"""Runs the weblog pipeline and compares every row of its traffic with a DuckDB query over the same
log.

python examples/weblog/check.py [--launcher spark|processes] [--fresh]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb

HERE = Path(__file__).parent
LOG = HERE / "data" / "apache_access.log"
OUT = Path("out") / "weblog"

QUERY = r"""
with lines as (
    select column0 as line
    from read_csv(?, header=false, delim='\x01', quote='', escape='',
      columns={'column0': 'varchar'})
), hits as (
    select regexp_extract(line, '^(\S+)', 1) as client,
           regexp_extract(line, '"\S+ (\S+)', 1) as path,
           epoch_us(strptime(regexp_extract(line, '\[([^\]]+)\]', 1),
             '%d/%b/%Y:%H:%M:%S %z')) as time,
           coalesce(try_cast(regexp_extract(line, '" \d+ (\S+)', 1) as bigint), 0) as size
    from lines
)
select path, time - time % 60000000 as window_start,
  time - time % 60000000 + 60000000 as window_end,
       count(*) as hits, sum(size)::bigint as bytes, count(distinct client) as visitors
from hits group by all order by all
"""

GOT = "select path, window_start, window_end, hits, bytes, visitors from read_json(?) order by all"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", default="spark")
    parser.add_argument(
        "--fresh", action="store_true", help="forget what an earlier run left in out/weblog"
    )
    given = parser.parse_args()
    if given.fresh:
        shutil.rmtree(OUT, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(HERE / "pipeline.yaml"),
        "--launcher",
        given.launcher,
    ]
    command += [
        "--set",
        f"output={OUT}",
        "--root",
        str(OUT / "root"),
        "--summary",
        str(OUT / "summary.json"),
    ]
    OUT.mkdir(parents=True, exist_ok=True)
    if subprocess.run(command, check=False).returncode:
        return 1
    want = duckdb.execute(QUERY, [str(LOG)]).fetchall()
    got = duckdb.execute(GOT, [str(OUT / "traffic" / "*.jsonl")]).fetchall()
    if want != got:
        different = sorted(set(want) ^ set(got))
        print(
            f"{len(different)} of {len(want)} rows differ from DuckDB's, for example"
            f" {different[:3]}"
        )
        return 1
    print(
        f"All {len(got)} rows of {OUT / 'traffic'} equal DuckDB's over the same log. The busiest"
        " minutes:"
    )
    for row in sorted(got, key=lambda row: (-row[3], row[0]))[:5]:
        print(f"  {row[3]:>4} hits  {row[5]:>3} visitors  {row[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
