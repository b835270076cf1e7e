from __future__ import annotations

from collections.abc import Callable

import pytest

from millwheel.control.savepoints import blueprint
from millwheel.control.savepoints.blueprint import blueprint_of
from millwheel.control.savepoints.compatibility import compare
from millwheel.control.savepoints.rules.verdicts import Compatibility
from millwheel.core.pipeline.spec import PipelineSpec
from tests.unit.control.savepoints.test_compatibility import (
    CLASSES,
    FREE,
    REFUSED,
    SAVEPOINT,
    SPEC,
    by,
    sink,
    source,
    stream,
)

CHANGES: dict[str, tuple[Callable[[], PipelineSpec], str, Compatibility, str]] = {
    "source kind": (
        lambda: source("generator"),
        "source.visits",
        REFUSED,
        "of kind 'files' and is 'generator'",
    ),
    "source path": (
        lambda: source(path="other"),
        "source.visits",
        FREE,
        "reading continues in files of the same name",
    ),
    "source format": (
        lambda: source(format="csv"),
        "source.visits",
        REFUSED,
        "changes the meaning of its positions",
    ),
    "source follow": (
        lambda: source(follow=True),
        "source.visits",
        REFUSED,
        "changes the meaning of its positions",
    ),
    "max_delay": (lambda: stream(max_delay_us=5), "source.visits", FREE, "watermark settings"),
    "timestamp": (
        lambda: stream(timestamp="at"),
        "source.visits",
        FREE,
        "timestamps are read differently",
    ),
    "sink path": (
        lambda: sink(0, options={"path": "b"}),
        "sink.returned",
        SAVEPOINT,
        "after the savepoint",
    ),
    "sink flush": (
        lambda: sink(0, options={"path": "out", "flush": "5s"}),
        "sink.returned",
        FREE,
        "at once",
    ),
    "sink kind": (
        lambda: sink(0, kind="stdout"),
        "sink.returned",
        SAVEPOINT,
        "its kind was 'files' and is 'stdout'",
    ),
    "sink mode": (
        lambda: sink(1, options={"path": "m"}),
        "sink.minutes",
        REFUSED,
        "the current rows are not known",
    ),
    "sink key": (
        lambda: sink(0, key=by("user")),
        "sink.returned",
        SAVEPOINT,
        "its key was the record's own key",
    ),
    "upsert key": (
        lambda: sink(1, key=by("user")),
        "sink.minutes",
        REFUSED,
        "the current rows are identified by",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_of_an_end_has_its_verdict_and_says_why(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(blueprint, "load_object", lambda name, folder: CLASSES[name])
    changed, node, verdict, words = CHANGES[name]
    changes = compare(blueprint_of(SPEC), blueprint_of(changed()))
    found = [change for change in changes if change.node == node and words in change.sentence]
    assert [change.verdict for change in found] == [verdict], [str(change) for change in changes]
