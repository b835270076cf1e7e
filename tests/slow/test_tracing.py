"""Records that are posted with a trace, and the spans that a collector gets of them."""

from __future__ import annotations

import http.client
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from millwheel.core.model.keys import key_hash
from millwheel.core.tracing import chosen_numbers
from tests.servers.kafka import Broker
from tests.servers.otlp import ReceivedSpan, collector
from tests.slow.kafka import committed_messages, produce
from tests.slow.runs import Run
from tests.slow.test_http import free_port
from tests.slow.test_inject import CODE
from tests.slow.test_savepoints import done

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: traced
tracing: {}
streams:
  hits: {source: {http: {port: PORT}}, timestamp: ts, watermark: {max_delay: 1h, idle_after: never}}
computations:
  count:
    input: {hits: {key: page}}
    callback: counting:Count
    output: counts
sinks:
  counts: {files: {path: "${output}/counts", flush: 100ms}}
"""
TRACES = {f"{number:032x}": f"page{number}" for number in range(1, 9)}
PARENT = "00f067aa0ba902b7"
STAGES = ["source.hits process", "count process", "sink.counts process", "sink.counts publish"]


def posted(port: int, body: bytes, headers: dict[str, str]) -> bool:
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as line:
            line.request("POST", "/", body, headers)
            return line.getresponse().status == 200
    except OSError:
        return False


def way(spans: list[ReceivedSpan], trace: str) -> list[ReceivedSpan]:
    """The spans of a trace from its only root on; each has one child."""
    mine = {span.parent: span for span in spans if span.trace == trace}
    assert len(mine) == sum(span.trace == trace for span in spans), "two spans have one parent"
    found: list[ReceivedSpan] = []
    at = PARENT
    while at in mine:
        found.append(mine[at])
        at = mine[at].span
    assert len(found) == len(mine), "the spans are not a tree"
    return found


def test_the_way_of_a_posted_record_through_two_workers_is_one_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    (tmp_path / "p.yaml").write_text(PIPELINE.replace("PORT", str(port)))
    (tmp_path / "counting.py").write_text(CODE)
    with collector() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        run = Run(tmp_path / "p.yaml", tmp_path, {"output": str(tmp_path / "out")}).start()
        deadline = time.monotonic() + 60
        while not posted(port, b'{"page": "plain", "ts": 1}', {}):
            assert time.monotonic() < deadline
            assert run.process.poll() is None
            time.sleep(0.05)
        for trace, page in TRACES.items():
            body = b'{"page": "%s", "ts": 1}' % page.encode()
            assert posted(port, body, {"traceparent": f"00-{trace}-{PARENT}-01"})
        assert posted(
            port, b'{"page": "unsampled", "ts": 1}', {"traceparent": f"00-{'e' * 32}-{PARENT}-00"}
        )
        done("stop", "--drain", "--root", str(run.root))
        assert run.wait().code == 0, run.said
        spans = collected.spans
    assert {span.trace for span in spans} == TRACES.keys()
    for trace, page in TRACES.items():
        whole = way(spans, trace)
        assert [span.name for span in whole if not span.name.endswith("deliver")] == STAGES
        count = next(span for span in whole if span.name == "count process")
        assert count.attributes["millwheel.key_hash"] == f"{key_hash(page):016x}"
        assert count.attributes["millwheel.event_time_us"] == 1
    assert any(span.name.endswith("deliver") for span in spans), "no record has changed its worker"
    assert {span.process for span in spans} == {"worker-0", "worker-1"}


FROM_TOPIC = """
pipeline: traced_topic
tracing: {sample: 0.01, keys: true}
streams:
  clicks:
    source: {kafka: {brokers: "BROKERS", topics: [INPUT], format: json, until: latest}}
    timestamp: {field: ts, unit: ms}
computations:
  seen: {input: {clicks: {key: ad}}, filter: ad < 5, output: seen}
sinks:
  seen: {kafka: {brokers: "BROKERS", topic: OUTPUT, format: json, key: ad, guarantee: exactly_once}}
"""
RECORDS = 1_000


def test_a_context_goes_from_topic_to_topic_and_some_records_without_one_are_sampled(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = broker.make_topic("traced-in"), broker.make_topic("traced-out")
    produce(
        broker, source, [(0, None, {"ad": number % 10, "ts": number}) for number in range(RECORDS)]
    )
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = [("traceparent", f"00-{trace}-{PARENT}-01".encode()), ("tracestate", b"v=1")]
    produce(broker, source, [(0, None, {"ad": 1, "ts": RECORDS})], headers=headers)
    made = (
        FROM_TOPIC.replace("BROKERS", broker.address)
        .replace("INPUT", source)
        .replace("OUTPUT", target)
    )
    (tmp_path / "p.yaml").write_text(made)
    with collector() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.endpoint)
        run = Run(tmp_path / "p.yaml", tmp_path, workers=1).start().wait()
        assert run.code == 0, run.said
        spans = collected.spans
    whole = way(spans, trace)
    stages = ["source.clicks read", "seen process", "sink.seen process", "sink.seen publish"]
    assert [span.name for span in whole] == stages
    assert (whole[0].attributes["millwheel.position"], whole[1].attributes["millwheel.key"]) == (
        RECORDS + 1,
        "1",
    )
    rows = committed_messages(broker, target, 1)
    told = {dict(row.headers() or ()).get("traceparent") for row in rows}
    mine = f"00-{trace}-{whole[2].span}-01".encode()
    [row] = [row for row in rows if ("traceparent", mine) in (row.headers() or ())]
    assert dict(row.headers())["tracestate"] == b"v=1"
    reads = {span.trace: span for span in spans if span.name == stages[0] and span.trace != trace}
    assert {span.attributes["millwheel.position"] for span in reads.values()} == set(
        chosen_numbers(0.01, f"source.clicks/{source}/0", np.arange(1, RECORDS + 1, dtype=np.int64))
    )
    written = {span.trace: span for span in spans if span.name == stages[2] and span.trace != trace}
    of_row = {(span.trace, span.span) for span in written.values()} | {(trace, whole[2].span)}
    assert {tuple(parent.decode().split("-")[1:3]) for parent in told if parent} == of_row
    assert None in told, "most rows have no trace"
    assert written.keys() <= reads.keys()
    assert len(rows) == RECORDS // 2 + 1
