"""The pipeline of pipeline.yaml, written in Python. `millwheel run examples/ads/pipeline.py` does
the same."""

from billing import Billing

from millwheel import FileSink, FileSource, Pipeline, Tumbling, agg, param

ads = Pipeline("ads")

events = ads.read(
    "events",
    FileSource(param("input"), "jsonl"),
    fields={"event_id": str, "ad_id": int, "client_id": int, "type": str, "cost": float, "ts": int},
    timestamp="ts",
    timestamp_unit="ms",
    id="event_id",
    id_horizon="10m",
    max_delay="10s",
)

(
    events.key_by("ad_id")
    .window(Tumbling("1m"))
    .aggregate(
        {
            "impressions": agg.count(where="type == 'impression'"),
            "clicks": agg.count(where="type == 'click'"),
            "spend": agg.sum("cost"),
        },
        output="ctr",
    )
    .write(FileSink("${output}/ctr", "jsonl"))
)

(
    events.key_by("client_id")
    .process(Billing, options={"budget": param("budget", 50)}, name="billing", output="over_budget")
    .write(FileSink("${output}/over_budget", "jsonl"))
)
