from __future__ import annotations

import socket

from prometheus_client.parser import text_string_to_metric_families

from millwheel.adapters.metrics.client import fetched
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.adapters.metrics.text import merged, text_of
from millwheel.core.metrics import DEAD_LETTERS, JOURNAL_WRITE, SHARDS, Figure, Histogram


def lines(text: str, begin: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(begin)]


def test_figures_have_their_own_labels_and_those_of_the_process() -> None:
    reason = 'ValueError at "a.py":3\nand \\ more'
    text = text_of(
        [Figure(DEAD_LETTERS, 2, ("c", "c-0", reason))], {"process": "worker-0"}
    ).decode()
    [family] = [
        each
        for each in text_string_to_metric_families(text)
        if each.name == "millwheel_dead_letters"
    ]
    [sample] = family.samples
    assert sample.labels == {
        "computation": "c",
        "shard": "c-0",
        "reason": reason,
        "process": "worker-0",
    }
    assert (family.type, sample.value) == ("counter", 2)
    assert lines(text, 'process_cpu_seconds_total{process="worker-0"}')


def test_a_histogram_has_its_buckets_sum_and_count() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.add(0.05)
    histogram.add(3.0)
    text = text_of([Figure(JOURNAL_WRITE, histogram)], {}).decode()
    assert lines(text, "millwheel_journal_write_seconds") == [
        'millwheel_journal_write_seconds_bucket{le="0.1"} 1.0',
        'millwheel_journal_write_seconds_bucket{le="1.0"} 1.0',
        'millwheel_journal_write_seconds_bucket{le="+Inf"} 2.0',
        "millwheel_journal_write_seconds_count 2.0",
        "millwheel_journal_write_seconds_sum 3.05",
    ]


def test_the_texts_of_several_processes_have_each_family_once() -> None:
    texts = [
        text_of([Figure(SHARDS, n, ("live",))], {"process": f"worker-{n}"}).decode() for n in (1, 2)
    ]
    text = merged(texts)
    assert (
        len(lines(text, "# TYPE millwheel_shards "))
        == len(lines(text, "# HELP millwheel_shards "))
        == 1
    )
    assert len(lines(text, "millwheel_shards{")) == 2
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names))


# client.py


def test_processes_that_do_not_answer_are_left_out() -> None:
    endpoint = Endpoint("127.0.0.1:0", None, {"/metrics": lambda: b"up 1\n"})
    endpoint.start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{free.getsockname()[1]}"
        found = fetched(
            {"here": endpoint.address, "gone": gone, "odd": "nowhere:x"}, "/metrics", None
        )
    assert found == {"here": "up 1\n"}
    assert fetched({"here": endpoint.address}, "/none", None) == {}
    assert fetched({}, "/metrics", None) == {}
    endpoint.close()
