"""The pipeline of ``python -m bench start`` on bytewax: a count per page and minute, a file to a
file."""

from datetime import datetime, timedelta, timezone

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow


def at(record):
    return datetime.fromisoformat(record["at"].replace("Z", "+00:00"))


clock = win.EventClock(at, wait_for_system_duration=timedelta(seconds=10))
minutes = win.TumblingWindower(
    length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=timezone.utc)
)
flow = Dataflow("visits")
records = op.map("parse", op.input("in", flow, FileSource("in.jsonl")), orjson.loads)
counted = win.count_window("count", records, clock, minutes, lambda record: record["page"])
lines = op.map("line", counted.down, lambda row: (row[0], orjson.dumps([row[0], *row[1]]).decode()))
op.output("out", lines, FileSink("out.jsonl"))
