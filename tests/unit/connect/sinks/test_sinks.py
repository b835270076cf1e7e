"""Which sinks there are, and what is said about options that cannot work."""

from __future__ import annotations

import errno
import os
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import millwheel.connect.plug_ins
from millwheel.connect.sinks import build_sink, known_sinks
from millwheel.connect.sinks.base import BatchRefusedError, Refused, Sink, SinkRecord
from millwheel.connect.sinks.error_messages import in_words
from millwheel.core.pipeline.spec import SinkSpec
from millwheel.errors import SetupError, UnavailableError


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
            "option 'flush': 'soon' is no duration; write a number and a unit",
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
        ("stdout", {"flush": "x"}, "option 'flush': 'x' is no duration"),
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

    point = EntryPoint("queue", "somewhere:Old", "millwheel.sinks")
    monkeypatch.setattr(
        millwheel.connect.plug_ins, "entry_points", lambda group, name="queue": [point]
    )
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda options, folder: Old())
    assert isinstance(build_sink(SinkSpec("alerts", "queue", {}), "/"), Sink)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda options, folder: None)
    with pytest.raises(SetupError, match="NoneType has no check and no open"):
        build_sink(SinkSpec("alerts", "queue", {}), "/")


# base.py


def test_a_refused_batch_tells_what_is_left_of_it_and_why() -> None:
    refused = [Refused(SinkRecord("k", 1, 0), "too odd"), Refused(SinkRecord("k", 3, 0), "odder")]
    error = BatchRefusedError(refused, b"rest")
    assert (str(error), error.refused, error.committable) == (
        "too odd; odder",
        tuple(refused),
        b"rest",
    )


# error_messages.py


def failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOENT, errno.EPIPE])
def test_what_a_person_must_change_is_a_setup_error_with_the_fix(number: int) -> None:
    error = in_words(failed(number), "write results to /out")
    assert isinstance(error, SetupError)
    assert str(error).startswith(f"cannot write results to /out: {os.strerror(number)}; ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_what_may_pass_is_tried_again(number: int) -> None:
    assert isinstance(in_words(failed(number), "publish"), UnavailableError)


def test_an_error_without_a_number_is_told_too() -> None:
    assert (
        str(in_words(OSError("odd"), "publish"))
        == "cannot publish: odd; look at the disk and its mount"
    )
