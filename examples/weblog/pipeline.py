"""The pipeline of pipeline.yaml, written in Python. `millwheel run examples/weblog/pipeline.py`
does the same."""

from detectors import SpikeDetector, whole_site

from millwheel import Cumulative, FileSink, FileSource, Pipeline, Tumbling, agg

weblog = Pipeline("weblog")

hits = weblog.read(
    "hits",
    FileSource("${input:-data/apache_access.log}", "apache_combined"),
    timestamp="time",
    max_delay="2m",
)

traffic = (
    hits.key_by("path")
    .window(Tumbling("1m"))
    .aggregate(
        {"hits": agg.count(), "bytes": agg.sum("size"), "visitors": agg.count_distinct("client")},
        name="traffic",
        output="traffic_by_minute",
    )
    .write(FileSink("${output:-out/weblog}/traffic", "jsonl"))
)

(
    traffic.key_by("path")
    .process(SpikeDetector, options={"factor": 4, "warm_up": 5}, name="spikes", output="alerts")
    .write(FileSink("${output:-out/weblog}/alerts", "jsonl"))
)

# Unique visitors of the day so far, said again every minute in which somebody new came.
(
    hits.key_by(whole_site)
    .window(Cumulative("1d", every="1m"))
    .aggregate({"visitors": agg.count_distinct("client")}, name="audience", output="visitors_today")
    .write(FileSink("${output:-out/weblog}/visitors_today", "jsonl"))
)
