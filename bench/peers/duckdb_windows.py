"""Part A in DuckDB, as a batch: the limit, not a peer; it keeps no state and commits nothing."""

import os

import duckdb

FORM = os.environ["BENCH_FORM"]
READ = {
    "jsonl": (
        "read_json('{}/*.jsonl', format='newline_delimited', columns={{ad_id: 'BIGINT', type:"
        " 'VARCHAR', cost: 'DOUBLE', ts: 'BIGINT'}})"
    ),
    "parquet": "read_parquet('{}/*.parquet')",
}[FORM].format(os.environ["BENCH_INPUT"])

duckdb.execute(f"""
copy (
    select ad_id, (ts - ts % 60000) * 1000 as window_start,
      count(*) filter (type = 'impression') as impressions,
           count(*) filter (type = 'click') as clicks, sum(cost) as spend
    from {READ} group by all
) to '{os.environ["BENCH_OUTPUT"]}/minutes.json' (format json)
""")
