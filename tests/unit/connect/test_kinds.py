"""Sources and sinks by name: built-in ones, those of entry points, and names that nobody knows."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

import millwheel.connect.plug_ins
from millwheel.connect.kinds import build_sink, build_source, known_sinks, known_sources
from millwheel.connect.sinks.base import Sink
from millwheel.connect.sources.base import Partition, Source
from millwheel.core.pipeline.spec import SinkSpec, SourceSpec
from millwheel.errors import SetupError


def install(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("queue", value, "millwheel.sources")
    monkeypatch.setattr(
        millwheel.connect.plug_ins,
        "entry_points",
        lambda group, name="queue": [point] if name == "queue" else [],
    )


class Queue(Source):
    bounded = False

    def __init__(self, *given: Any) -> None:
        self.given = given

    def partitions(self) -> list[Partition]:
        return []

    def open(self, partition: Partition) -> Any: ...


def queue(options: dict[str, Any], folder: str) -> Queue:
    return Queue("a queue", options, folder)


def test_the_built_in_sources_are_known() -> None:
    assert known_sources() == ["files", "generator", "http", "injection", "kafka", "postgres"]


def test_a_third_partys_source_is_built_by_its_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, f"{__name__}:queue")
    monkeypatch.setattr(EntryPoint, "load", lambda self: queue)
    assert "queue" in known_sources()
    built = build_source(SourceSpec("queue", {"url": "x"}), "/folder")
    assert isinstance(built, Queue)
    assert built.given == ("a queue", {"url": "x"}, "/folder")


def test_a_third_partys_source_that_is_none_is_a_setup_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, f"{__name__}:queue")
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda options, folder: "a queue")
    with pytest.raises(SetupError, match=r"builtins\.str has no bounded"):
        build_source(SourceSpec("queue"), "/")


def test_a_third_partys_source_that_cannot_be_loaded_is_a_setup_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, "no_such_package_anywhere:factory")
    with pytest.raises(SetupError, match="no_such_package_anywhere:factory"):
        build_source(SourceSpec("queue"), "/")


def test_an_unknown_source_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="there is no source 'file'; did you mean 'files'"):
        build_source(SourceSpec("file"), "/")


def test_injection_is_known_but_not_read() -> None:
    with pytest.raises(ValueError, match="records are sent to the workers"):
        build_source(SourceSpec("injection"), "/")


def test_an_undeclarable_field_type_is_refused() -> None:
    with pytest.raises(
        ValueError, match="field 'n' is declared as 'integer'; write one of int, float, str, bool"
    ):
        build_source(
            SourceSpec("files", {"path": "x", "format": "jsonl"}), "/", None, {"n": "integer"}
        )


def test_the_built_in_sinks_are_known() -> None:
    assert {"files", "stdout"} <= set(known_sinks())


def test_a_sink_says_how_long_and_how_much_it_collects() -> None:
    files = build_sink(SinkSpec("alerts", "files", {"path": "out"}), "/")
    printed = build_sink(SinkSpec("alerts", "stdout", {"flush": "20ms"}), "/")
    assert (files.flush_us, files.cut_records) == (1_000_000, 50_000)
    assert (printed.flush_us, printed.cut_records) == (20_000, 1_000)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("file", {}, "there is no sink 'file'; did you mean 'files'?"),
        ("files", {}, "needs the option 'path'; write for example path: results/alerts"),
        ("files", {"path": ""}, "option 'path' is ''; write a folder"),
        (
            "files",
            {"path": "hdfs://name/x"},
            "nothing here reads or writes hdfs://; files lie in folders",
        ),
        ("files", {"path": 7}, "option 'path': expected str, got int; write for example path:"),
        (
            "files",
            {"path": "x", "format": "json"},
            r"option 'format' is 'json' \(did you mean 'jsonl'\?\)",
        ),
        (
            "files",
            {"path": "x", "fromat": "jsonl"},
            "has no option 'fromat'; did you mean 'format'?",
        ),
        (
            "files",
            {"path": "x", "flush": "soon"},
            "option 'flush': 'soon' is not a duration; write a number and a unit",
        ),
        ("files", {"path": "x", "flush": -1}, "option 'flush' is -1; write a duration"),
        (
            "files",
            {"path": "x", "cut_records": 0},
            "option 'cut_records' is 0; write how many rows",
        ),
        (
            "files",
            {"path": "x", "fields": {"a": "int"}},
            "option 'fields' fixes the columns of format: parquet",
        ),
        (
            "files",
            {"path": "x", "format": "parquet", "fields": {"a": "number"}},
            "'a' is 'number'; write one of int",
        ),
        ("stdout", {"flush": "x"}, "option 'flush': 'x' is not a duration"),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_fix(
    kind: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        build_sink(SinkSpec("alerts", kind, options), "/")


def test_a_third_partys_sink_may_have_the_methods_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def check(self, identity: str) -> None: ...
        def open(self, shard: str, token: int) -> None: ...

    point = EntryPoint("queue_sink", "somewhere:Old", "millwheel.sinks")
    monkeypatch.setattr(
        millwheel.connect.plug_ins, "entry_points", lambda group, name="queue_sink": [point]
    )
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda options, folder: Old())
    assert isinstance(build_sink(SinkSpec("alerts", "queue_sink", {}), "/"), Sink)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda options, folder: None)
    with pytest.raises(SetupError, match="NoneType has no check and no open"):
        build_sink(SinkSpec("alerts", "queue_sink", {}), "/")
