from __future__ import annotations

from millwheel.core.pipeline.spec import KeyKind
from millwheel.language.spec.parts.sinks import read_sink
from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NodeReader


def read(text: str, stream: str = "out") -> tuple[object, list[str]]:
    problems = Problems("p.yaml")
    tree = parse(text, problems)
    assert tree is not None
    return read_sink(NodeReader(problems), stream, tree, "/home"), list(problems.found)


def test_rows_that_replace_each_other_come_to_one_shard_by_what_identifies_them() -> None:
    for text, kind, names in (
        ("files: {path: out, mode: upsert, by: user}", KeyKind.FIELD, ("user",)),
        ("files: {path: out, mode: upsert, by: [user, day]}", KeyKind.FIELDS, ("user", "day")),
        ("files: {path: out}", KeyKind.RECORD, ()),
        ("files: {path: out, by: [1]}", KeyKind.RECORD, ()),
    ):
        (spec, _), problems = read(text)  # type: ignore[misc]
        assert (spec.key.kind, spec.key.names, problems) == (kind, names, [])
        assert spec.options["path"] == "/home/out"
        assert spec.where == "p.yaml:1"


def test_a_sink_that_nobody_knows_and_a_stream_that_cannot_be_are_told() -> None:
    assert read("fils: {path: x}")[0] is None
    [problem] = read("fils: {path: x}")[1]
    assert "unknown sink 'fils'; did you mean 'files'?" in problem
    assert "cannot be the name of a stream" in read("stdout: {}", "a b")[1][0]
