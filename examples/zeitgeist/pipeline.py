"""The pipeline of pipeline.yaml, written in Python. `millwheel run examples/zeitgeist/pipeline.py`
does the same."""

from model import Watch

from millwheel import FileSink, FileSource, Pipeline, Tumbling, agg

zeitgeist = Pipeline("zeitgeist")

mentions = zeitgeist.read(
    "mentions",
    FileSource("${input:-data/Twitter_volume_*.csv}", "csv"),
    timestamp="timestamp",
    fields={"timestamp": str, "value": int},
    max_delay="5m",
)

# Without a key of its own, a record's key is the file it came from: one series each.
hourly = (
    mentions.window(Tumbling("1h", empty=True))  # a series that falls silent says so once
    .aggregate(
        {"mentions": agg.sum("value"), "samples": agg.count()}, name="hourly", output="by_hour"
    )
    .write(FileSink("${output:-out/zeitgeist}/by_hour", "jsonl"))
)

(
    hourly.key_by("key")
    .process(Watch, options={"threshold": 3.5, "warm_up": 48}, name="watch", output="alerts")
    .write(FileSink("${output:-out/zeitgeist}/alerts", "jsonl"))
)
