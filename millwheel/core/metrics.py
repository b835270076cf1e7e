"""All metrics, their readings, and the histograms that processes keep between readings.

Names and units follow Prometheus' conventions: seconds, bytes, ``_total`` for counters. The docs
site has them as tables (``python -m tests.metrics``). The names of a metric and of its labels are
public: dashboards and alerts rest on them.

Nothing here is called per record. Counters are read on a request for ``/metrics``, from numbers
that shards keep in any case. Histograms are filled once per bundle, write or batch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the catalogue. ``labels`` are those of a reading; every process adds its own."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


class Histogram:
    """The numbers of values at or below each of the ``bounds`` (s). One thread adds; others read it
    at any moment.

    A library's histogram takes a lock and looks up labels for each value. This one adds within 0.12
    µs, where prometheus_client takes 0.7 µs and OpenTelemetry 6 µs.
    """

    __slots__ = ("_counts", "bounds", "total_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def add(self, value_s: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self.bounds, value_s)] += 1
        self.total_s += value_s

    def cumulated(self) -> list[int]:
        """The numbers of values at or below each bound, and then of all values."""
        sums, sum_ = [], 0
        for count in self._counts:
            sums.append(sum_ := sum_ + count)
        return sums

    @property
    def count(self) -> int:
        """How many values were added."""
        return sum(self._counts)


@dataclass(frozen=True, slots=True)
class Figure:
    """The value of a metric for the ``values`` of its labels, at this moment."""

    metric: Metric
    value: float | Histogram
    values: tuple[str, ...] = ()


SHARD = ("computation", "shard")
"""The labels of counts per shard. ``computation`` is the node: a computation, ``source.…`` or
``sink.…``."""
NODE = ("computation",)
DIVIDED = (*SHARD, "sender", "divided")
"""The labels of a shard that divides the keys of the node ``divided``; a source divides them by
partition, its ``sender``."""

WRITE_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""From a write that stays in the machine's memory to a disk that hangs."""
LATENCY_BOUNDS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""From a record that crosses one worker to one that waits for a batch of its sink."""
EVENT_TIME_BOUNDS_S = (
    0.01,
    0.05,
    0.1,
    0.5,
    1.0,
    5.0,
    15.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    21600.0,
    86400.0,
)
"""From windows of a moment to windows of a day."""


def _counter(name: str, meaning: str, labels: tuple[str, ...] = SHARD) -> Metric:
    return Metric(f"millwheel_{name}", MetricKind.COUNTER, meaning, labels)


def _gauge(name: str, meaning: str, labels: tuple[str, ...] = SHARD) -> Metric:
    return Metric(f"millwheel_{name}", MetricKind.GAUGE, meaning, labels)


def _histogram(name: str, meaning: str, labels: tuple[str, ...] = SHARD) -> Metric:
    return Metric(f"millwheel_{name}", MetricKind.HISTOGRAM, meaning, labels)


# --- workers: per shard ---------------------------------------------------------------------------

RECORDS_IN = _counter(
    "records_in_total", "records that a source has read, or another node has taken from its inbox"
)
RECORDS_OUT = _counter(
    "records_out_total", "records that a sink has written, or another node has emitted"
)
LATE_RECORDS = _counter("late_records_total", "records dropped because they came too late")
DUPLICATES = _counter(
    "duplicates_total", "records dropped because their id was seen before", (*SHARD, "stream")
)
DEAD_LETTERS = _counter("dead_letters_total", "dead letters, by what failed", (*SHARD, "reason"))
REPLAYED = _counter("replayed_total", "dead letters that were tried again")
USER_COUNTER = _counter(
    "user_total", "counters of your own code (`ctx.count`)", (*SHARD, "counter")
)
COMMITS = _counter("commits_total", "durable commits since the shard began, across owners")
BUSY_SECONDS = _counter(
    "busy_seconds_total", "time that the worker's loop spent in bundles of the shard"
)
WATERMARK = _gauge(
    "watermark_timestamp_seconds",
    "the watermark, as a Unix time; absent before the first and when idle",
)
WATERMARK_LAG = _gauge(
    "watermark_lag_seconds", "the wall clock minus the watermark; absent when there is no watermark"
)
INBOX_RECORDS = _gauge("inbox_records", "records that wait to be taken")
CREDIT_USED = _gauge(
    "credit_used_ratio", "the part of its credit that the fullest outgoing lane has used; 1 waits"
)
CONGESTED = _gauge(
    "congested", "1 while so much is on its way to consumers that nothing more is taken"
)
COMMITS_IN_FLIGHT = _gauge("commits_in_flight", "commits that are made and not durable yet")
STATE_BYTES = _gauge("state_bytes", "size of the local store of the shard, estimated")
TIMERS = _gauge("timers", "timers that wait, by the time they fire by", (*SHARD, "domain"))
DEDUP_IDS = _counter("dedup_ids_total", "ids that were looked up")
DEDUP_DOUBTS = _counter("dedup_doubts_total", "ids that the Bloom filters could not call new")
DEDUP_LOOKUPS = _counter("dedup_lookups_total", "exact look-ups of such ids in the store")
DEDUP_FILTER_BYTES = _gauge("dedup_filter_bytes", "memory of the Bloom filters")
INSTANCE_RECORDS = _counter(
    "instance_records_total",
    "records that an instance of a divided node has got",
    (*SHARD, "part"),
)
GROUPING_EPOCH = _gauge(
    "grouping_epoch", "the number of the table by which a sender divides keys", DIVIDED
)
GROUPING_HOT_KEYS = _gauge(
    "grouping_hot_keys", "hot keys in a sender's table, the ten hottest at most", DIVIDED
)
GROUPING_HOTTEST = _gauge(
    "grouping_hottest_ratio", "share of the records that a sender's hottest key has", DIVIDED
)
GROUPING_SHARE = _gauge(
    "grouping_instance_ratio",
    "p_i: the part of a divided key that is meant for an instance",
    (*DIVIDED, "part"),
)
GROUPING_TIME = _gauge(
    "grouping_instance_seconds",
    "t_i: the time of one record at an instance, of tag and nag",
    (*DIVIDED, "part"),
)
PUBLISH_SECONDS = _histogram("publish_seconds", "time that a sink took to publish a batch")
PUBLISH_FAILURES = _counter(
    "publish_failures_total",
    "batches that could not be published at once, because the target was away",
)
LATENCY = _histogram(
    "latency_seconds", "processing latency: from the read of a record to its visibility at the sink"
)
EVENT_TIME_LATENCY = _histogram(
    "event_time_latency_seconds",
    "from the earliest timestamp in a batch to its visibility at the sink",
)

# --- workers: as a whole --------------------------------------------------------------------------

JOURNAL_WRITE = _histogram(
    "journal_write_seconds", "commit time: one write and sync of a group of commits", ()
)
JOURNAL_BYTES = _counter("journal_bytes_total", "bytes written to the journal", ())
SPANS = _counter("spans_total", "spans of traced records that have ended here", ())
SPANS_DROPPED = _counter(
    "spans_dropped_total", "spans that were not sent: too many wait, or the collector is away", ()
)
SPANS_LEFT_OUT = _counter(
    "spans_left_out_total", "traced records without spans, because their bundle had too many", ()
)
SHARDS = _gauge("shards", "shards of this worker, by where they are in their life", ("life",))
STEP_SECONDS = _gauge(
    "step_running_seconds", "how long the running step of the loop has taken; 0 between steps", ()
)
HEALTH = _gauge(
    "health_ratio",
    "how well the worker is by its lag, memory, disk and failed queries: 1 fine, 0 bad",
    (),
)
MEMORY_USED = _gauge(
    "memory_used_ratio", "used part of the memory that the worker's container or machine has", ()
)
DISK_USED = _gauge(
    "disk_used_ratio", "used part of the disk that holds the worker's local stores", ()
)

# --- the injector, per node -----------------------------------------------------------------------

NODE_WATERMARK = _gauge(
    "node_watermark_timestamp_seconds", "the published watermark of a node, as a Unix time", NODE
)
NODE_LAG = _gauge(
    "node_watermark_lag_seconds", "the wall clock minus the published watermark of a node", NODE
)
NODE_BEHIND = _gauge(
    "node_behind_seconds",
    "how far the watermark of a node is behind the furthest source, in event time",
    NODE,
)
NODE_SILENT = _gauge(
    "node_silent_shards", "shards of a node that have not reported to this injector", NODE
)
NODE_DRAINED = _gauge("node_drained", "1 once all of a node's bounded input went through it", NODE)
REFUSED_REPORTS = _counter(
    "refused_reports_total", "reports refused because a newer owner was known", NODE
)

# --- the master -----------------------------------------------------------------------------------

LIVE_WORKERS = _gauge("live_workers", "workers that the master counts as alive", ())
OWNED_SHARDS = _gauge("owned_shards", "shards of a node that have an owner", NODE)
ORPHANED_SHARDS = _gauge("orphaned_shards", "shards of a node that wait for an owner", NODE)
EXPOSED_SEATS = _gauge(
    "exposed_seats",
    "with spares: seats that the loss of this host would leave empty (no figure: none)",
    ("host",),
)
SLOWNESS = _gauge(
    "slowness",
    "unless --no-balance: how many times the time of the others a worker takes",
    ("worker",),
)

# --- the driver -----------------------------------------------------------------------------------

PROCESS_UP = _gauge(
    "process_up",
    "1 if this process of the run answered when its metrics were gathered",
    ("member",),
)
RESTARTS = _counter("restarts_total", "how often this process was started again", ("member",))
RUN_SECONDS = _gauge("run_seconds", "how long this driver has worked on the run", ())
CERTIFICATES_END = _gauge(
    "certificates_end_seconds", "when the run's certificates end, in seconds since 1970", ()
)

WORKER = (
    *(
        RECORDS_IN,
        RECORDS_OUT,
        LATE_RECORDS,
        DUPLICATES,
        DEAD_LETTERS,
        REPLAYED,
        USER_COUNTER,
        COMMITS,
        BUSY_SECONDS,
    ),
    *(
        WATERMARK,
        WATERMARK_LAG,
        INBOX_RECORDS,
        CREDIT_USED,
        CONGESTED,
        COMMITS_IN_FLIGHT,
        STATE_BYTES,
        TIMERS,
    ),
    *(DEDUP_IDS, DEDUP_DOUBTS, DEDUP_LOOKUPS, DEDUP_FILTER_BYTES),
    *(
        INSTANCE_RECORDS,
        GROUPING_EPOCH,
        GROUPING_HOT_KEYS,
        GROUPING_HOTTEST,
        GROUPING_SHARE,
        GROUPING_TIME,
    ),
    *(PUBLISH_SECONDS, PUBLISH_FAILURES, LATENCY, EVENT_TIME_LATENCY),
    *(JOURNAL_WRITE, JOURNAL_BYTES, SPANS, SPANS_DROPPED, SPANS_LEFT_OUT, SHARDS, STEP_SECONDS),
    *(HEALTH, MEMORY_USED, DISK_USED),
)
INJECTOR = (NODE_WATERMARK, NODE_LAG, NODE_BEHIND, NODE_SILENT, NODE_DRAINED, REFUSED_REPORTS)
MASTER = (LIVE_WORKERS, OWNED_SHARDS, ORPHANED_SHARDS, EXPOSED_SEATS, SLOWNESS)
DRIVER = (PROCESS_UP, RESTARTS, RUN_SECONDS, CERTIFICATES_END)
OF_PROCESS = {"worker": WORKER, "injector": INJECTOR, "master": MASTER, "driver": DRIVER}
"""The metrics of each process. All also have those of :mod:`prometheus_client`'s process
collector."""
