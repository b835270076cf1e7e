"""Sources by name: the built-in ones, third parties' entry points, and names that nobody knows."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

import millwheel.connect.plug_ins
from millwheel.connect.sources import build_source, known_sources
from millwheel.connect.sources.base import Partition, Source
from millwheel.core.pipeline.spec import SourceSpec
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
