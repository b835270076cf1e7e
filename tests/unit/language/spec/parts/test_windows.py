"""``window:`` and ``trigger:``."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.work import WindowSpec

MINUTE = 60_000_000
DAY = 86_400_000_000


def _pipeline(window: str, more: str = "") -> str:
    return (
        "pipeline: p\nstreams: {hits: {source: injection, timestamp: ts}}\ncomputations:\n "
        " c:\n    input: hits\n    output: out\n    aggregate: {n: count}\n    window:"
        f" {window}\n{more}"
    )


@pytest.mark.parametrize(
    ("text", "kind", "options"),
    [
        ("{tumbling: 1m}", "tumbling", {"size_us": MINUTE}),
        ("{tumbling: 1m, offset: 10s}", "tumbling", {"size_us": MINUTE, "offset_us": 10_000_000}),
        ("{tumbling: 1m, emit: empty}", "tumbling", {"size_us": MINUTE, "empty": True}),
        ("{tumbling: 1m, emit: all}", "tumbling", {"size_us": MINUTE}),
        (
            "{tumbling: 1d, time_zone: Europe/Paris}",
            "tumbling",
            {"size_us": DAY, "time_zone": "Europe/Paris"},
        ),
        (
            "{sliding: 1m, every: 10ms, emit: changes}",
            "sliding",
            {"size_us": MINUTE, "every_us": 10_000, "changes": True},
        ),
        (
            "{sliding: 1m, every: 1s, emit: all}",
            "sliding",
            {"size_us": MINUTE, "every_us": 1_000_000},
        ),
        ("{session: 1m}", "session", {"gap_us": MINUTE}),
        ("{global: true}", "global", {}),
        ("global", "global", {}),
        ("{count: 10}", "count", {"count": 10}),
        ("{cumulative: 1d, every: 1m}", "cumulative", {"size_us": DAY, "every_us": MINUTE}),
        ("{custom: spans:make, with: {size: 5}}", "custom", {"factory": "spans:make", "size": 5}),
    ],
)
def test_every_kind_of_window_can_be_written(
    check: Any, folder: Any, text: str, kind: str, options: Any
) -> None:
    (folder / "spans.py").write_text(
        "class Spans:\n    def __init__(self, size): self.size = size\n    def assign(self,"
        " timestamp): return [(timestamp, timestamp + self.size)]\nmake = Spans\n"
    )
    assert check(_pipeline(text)).computations[0].windowed.window == WindowSpec(kind, options)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("{tumbling: 1}", ".tumbling", "must be a duration, not 1"),
        ("{tumbling: 0s}", ".tumbling", "must lie between"),
        ("{tumbling: }", "", "tumbling has no value"),
        ("{tumbling: 1m, every: 1s}", ".every", "unknown field 'every'"),
        ("{tumbling: 1m, session: 1m}", "", "names 2 kinds of windows (tumbling, session)"),
        ("{tumbing: 1m}", ".tumbing", "unknown window 'tumbing'; did you mean 'tumbling'?"),
        ("tumbling", "", "must be a map, not 'tumbling'"),
        ("{}", "", "is empty"),
        ("{sliding: 1h}", ".every", "is missing; sliding windows need"),
        ("{sliding: 1m, every: 2m}", "", "would lose the records between them"),
        ("{sliding: 1m, every: 1s, emit: change}", ".emit", "did you mean 'changes'?"),
        (
            "{sliding: 1m, every: 1s, emit: empty}",
            ".emit",
            "with sliding ones, emit: changes also emits when",
        ),
        (
            "{cumulative: 1d, every: 1m, emit: empty}",
            ".emit",
            "with cumulative ones, leave out emit",
        ),
        ("{tumbling: 1m, emit: changes}", ".emit", "one of all, empty"),
        ("{count: 0}", ".count", "must be a whole number from 1"),
        ("{global: false}", ".global", "must be true"),
        ("{tumbling: 1d, time_zone: Mars/Base}", "", "unknown time zone 'Mars/Base'"),
        ("{cumulative: 1d, every: 7m}", "", "cannot grow by 7m"),
        ("{custom: 3}", ".custom", "must be text"),
        ("{custom: nothing:here}", "", "there is no module 'nothing'"),
        ("{custom: detectors:Plain}", "", "must return an object with assign(timestamp)"),
        (
            "{custom: detectors:SpikeDetector, with: {size: 3}}",
            "",
            "this cannot be built: TypeError",
        ),
    ],
)
def test_mistakes_in_a_window_are_named(problems: Any, text: str, path: str, expected: str) -> None:
    (found,) = problems(_pipeline(text))
    assert found.startswith(f"pipeline.yaml:8: computations.c.window{path}: ")
    assert expected in found


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("after_watermark", {"after_watermark": None}),
        ("{repeat: {any: [{after_count: 100}, {after_processing_time: 10s}]}}", None),
        ("{or_finally: {main: {repeat: {after_count: 2}}, until: after_watermark}}", None),
        ("{custom: mine:Mine}", {"custom": "mine:Mine"}),
    ],
)
def test_triggers_are_kept_as_trees(check: Any, folder: Any, text: str, tree: Any) -> None:
    (folder / "mine.py").write_text(
        "from millwheel.core.windows.triggers import Never\nclass Mine(Never): pass\n"
    )
    found = (
        check(_pipeline("{tumbling: 1m}", f"    trigger: {text}\n")).computations[0].firing.trigger
    )
    assert isinstance(found, dict)
    assert tree is None or found == tree


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("{after_cont: 3}", "", "unknown trigger 'after_cont'"),
        (
            "{after_watermark: {early: {after_count: 0}}}",
            ".after_watermark.early.after_count",
            "at least 1, not 0",
        ),
        ("{any: [{after_count: 1}, 3]}", ".any[1]", "is one trigger"),
        ("{any: {after_count: 1}}", ".any", "needs a list"),
        ("{after_processing_time: 10}", "", ""),
        ("{custom: nothing:here}", "", "there is no module 'nothing'"),
        ("{after_percentile_watermark: 95}", ".after_percentile_watermark", "between 0 and 1"),
    ],
)
def test_mistakes_in_a_trigger_are_named_where_they_are(
    problems: Any, text: str, path: str, expected: str
) -> None:
    found = problems(_pipeline("{tumbling: 1m}", f"    trigger: {text}\n"))
    if not expected:
        return
    assert found[0].startswith(f"pipeline.yaml:9: computations.c.trigger{path}: ")
    assert expected in found[0]


def test_without_checking_code_custom_windows_and_triggers_are_only_named(check: Any) -> None:
    text = _pipeline("{custom: nothing:here}", "    trigger: {custom: nothing:there}\n")
    assert check(text, check_code=False).computations[0].firing.trigger == {
        "custom": "nothing:there"
    }
