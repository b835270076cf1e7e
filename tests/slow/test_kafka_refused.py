"""Kafka with a password: the right one, a wrong one, and none; it appears nowhere."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.connectors.kafka.sink import build_kafka_sink
from millwheel.errors import SetupError
from tests.servers.kafka import PASSWORD, USER, Broker
from tests.slow.kafka import committed, produce, source
from tests.slow.runs import Run

pytestmark = pytest.mark.slow
PIPELINE = """
pipeline: guarded
streams:
  clicks:
    source:
      kafka: {{brokers: "{brokers}", topics: [guarded-in], until: latest, config: {config}}}
    timestamp: {{field: ts, unit: ms}}
computations:
  counts:
    input: {{clicks: {{key: ad}}}}
    window: {{tumbling: 1m}}
    aggregate: {{clicks: count}}
    output: counts
sinks:
  counts: {{kafka: {{brokers: "{brokers}", topic: guarded-out, config: {config}}}}}
"""
CONFIG = (
    "{security.protocol: sasl_plaintext, sasl.mechanism: PLAIN, "
    f'sasl.username: {USER}, sasl.password: "${{secret:PW}}"}}'
)


def settings(password: str) -> dict[str, Any]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": password,
    }


def test_a_password_opens_topics_and_lies_nowhere(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.make_topic("guarded-in")
    broker.make_topic("guarded-out")
    produce(broker, "guarded-in", [(0, None, {"ad": n % 3, "ts": n}) for n in range(30)])
    (tmp_path / "p.yaml").write_text(PIPELINE.format(brokers=broker.guarded, config=CONFIG))
    monkeypatch.setenv("PW", PASSWORD)
    run = Run(tmp_path / "p.yaml", tmp_path, workers=1).start().wait()
    assert run.code == 0, run.said
    rows = [json.loads(value or b"") for _, value in committed(broker, "guarded-out", 1)]
    assert sorted((row["ad"], row["clicks"]) for row in rows) == [(0, 10), (1, 10), (2, 10)]
    monkeypatch.setenv("PW", wrong := "wr0ng-of-alice")
    refused = (
        Run(tmp_path / "p.yaml", tmp_path, workers=1, place=str(tmp_path / "other")).start().wait()
    )
    assert refused.code != 0
    assert "refuses clients" in refused.said
    assert "Traceback" not in refused.said
    told = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [
        path for path, data in told.items() if PASSWORD.encode() in data or wrong.encode() in data
    ] == []
    assert PASSWORD not in run.said + refused.said
    assert wrong not in refused.said


def test_a_wrong_password_is_told_at_once_and_not_shown(broker: Broker) -> None:
    broker.address, open_one = broker.guarded, broker.address
    try:
        read = source(broker, "guarded-any", until="latest", config=settings("wr0ng"))
    finally:
        broker.address = open_one
    sink = build_kafka_sink(
        {"brokers": broker.guarded, "topic": "t", "config": settings("wr0ng")}, "r"
    )
    for ask in (read.partitions, read.check, lambda: sink.check("r")):
        began = time.monotonic()
        with pytest.raises(
            SetupError, match=r"refuses clients.*[Aa]uthentication.*option 'config'"
        ) as told:
            ask()
        assert "wr0ng" not in str(told.value)
        assert time.monotonic() - began < 9, "it need not wait for the time to run out"
