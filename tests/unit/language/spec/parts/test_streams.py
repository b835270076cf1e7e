"""``streams:``: sources, timestamps, ids, watermarks, declared types."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.spec import StreamSpec


@pytest.fixture
def stream(check: Any) -> Any:
    """The one stream of a pipeline, given the lines below its name."""

    def read(text: str, source: str = "source: {files: {path: x, format: jsonl}}") -> StreamSpec:
        return check(_pipeline(text, source)).streams[0]  # type: ignore[no-any-return]

    return read


def _pipeline(text: str, source: str = "source: {files: {path: x, format: jsonl}}") -> str:
    lines = "".join(f"    {line}\n" for line in [source, *text.splitlines()] if line)
    return f"pipeline: p\nstreams:\n  a:\n{lines}sinks: {{a: {{stdout: {{}}}}}}\n"


def test_a_timestamp_is_a_field_a_field_with_a_unit_or_a_function(stream: Any) -> None:
    plain, unit = stream("timestamp: ts"), stream("timestamp: {field: ts, unit: ms}")
    assert (plain.timestamp, plain.timestamp_unit_us) == ("ts", 1)
    assert (unit.timestamp, unit.timestamp_unit_us) == ("ts", 1000)
    assert stream("timestamp: detectors:by_user").timestamp == "detectors:by_user"


def test_the_generator_knows_its_own_timestamp(stream: Any) -> None:
    assert stream("", "source: {generator: {rate: 5}}").timestamp == "ts"


def test_an_id_may_have_a_horizon(stream: Any) -> None:
    assert stream("timestamp: ts\nid: event_id").id == "event_id"
    given = stream("timestamp: ts\nid: {field: event_id, horizon: 2h}")
    assert (given.id, given.id_horizon_us) == ("event_id", 7_200_000_000)


def test_watermarks_have_defaults_and_never(stream: Any) -> None:
    plain = stream("timestamp: ts")
    assert (plain.max_delay_us, plain.idle_after_us, plain.max_future_us) == (
        0,
        5_000_000,
        86_400_000_000,
    )
    given = stream(
        "timestamp: ts\nwatermark: {max_delay: 1s, idle_after: never, max_future: never}"
    )
    assert (given.max_delay_us, given.idle_after_us, given.max_future_us) == (1_000_000, None, None)


def test_fields_declare_types(stream: Any) -> None:
    assert stream("timestamp: ts\nfields: {a: int, b: str}").fields == {"a": "int", "b": "str"}


def test_a_schema_is_loaded_and_must_have_the_fields_that_are_named(
    check: Any, problems: Any, folder: Any
) -> None:
    (folder / "rows.py").write_text(
        "import msgspec\nclass Row(msgspec.Struct):\n    ts: int\n    uid: str\nODD = 3\n"
    )
    assert (
        check(_pipeline("timestamp: ts\nschema: rows:Row\nid: uid")).streams[0].schema == "rows:Row"
    )
    (found,) = problems(_pipeline("timestamp: tss\nschema: rows:Row"))
    assert "rows:Row has no field 'tss'; did you mean 'ts'?; it has ts, uid" in found
    (found,) = problems(_pipeline("timestamp: ts\nschema: rows:ODD"))
    assert "msgspec cannot decode records into rows:ODD" in found


def test_a_parameter_may_be_a_number_where_a_path_is_text(check: Any) -> None:
    text = _pipeline(
        "timestamp: ts", 'source: {files: {path: "${n}", format: jsonl, max_line_bytes: "${n}"}}'
    )
    options = check(text, {"n": "2024"}).streams[0].source.options
    assert options["path"].endswith("/2024")
    assert options["max_line_bytes"] == 2024


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "5: streams.a.timestamp: is missing"),
        ("timestamp: {unit: ms}", "streams.a.timestamp.field: is missing"),
        ("timestamp: {field: ts, unit: min}", "must be one of us, ms, s, not 'min'"),
        ("timestamp: 'a:b:c'", "neither a field nor module:function"),
        ("timestamp: [ts]", "must be text, not a list"),
        ("timestamp: 3", "must be text, not 3"),
        ("timestamp: detectors:NUMBER", "detectors:NUMBER is a int, not a function"),
        ("timestamp: ts\nid: {horizon: 1h}", "streams.a.id.field: is missing"),
        (
            "timestamp: ts\nid: {field: x, horizon: 1}",
            "must be a duration, not 1; write a number and a unit",
        ),
        ("timestamp: ts\nwatermark: 10s", "streams.a.watermark: must be a map, not '10s'"),
        ("timestamp: ts\nwatermark: {max_delay: 10 sec}", "is not a duration"),
        ("timestamp: ts\nwatermark: {max_delay: 100000d}", "must lie between"),
        ("timestamp: ts\nwatermark: {idle: 5s}", "unknown field 'idle'"),
        (
            "timestamp: ts\nfields: {a: integer}",
            "streams.a.fields.a: must be one of int, float, str, bool, timestamp, not 'integer'",
        ),
        ("timestamp: ts\nfields: [a]", "streams.a.fields: must be a map"),
    ],
)
def test_mistakes_in_a_stream_are_named(problems: Any, text: str, expected: str) -> None:
    (found,) = problems(_pipeline(text))
    assert expected.removeprefix("5: ") in found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "source: 3",
            (
                "names one source with its options, for example {files: {path: …}}. Known: files,"
                " generator"
            ),
        ),
        ("source: {}", "names one source"),
        ("source: {files: {path: x}, injection: {}}", "names one source"),
        ("source: {pulsar: {}}", "unknown source 'pulsar'."),
        (
            "source: {pulsar: {}}",
            "need an extra: pip install 'millwheel-spark[EXTRA]', one of delta, http",
        ),
        (
            "source: {postgresql: {}}",
            "pip install 'millwheel-spark[postgres]'; its name is 'postgres'",
        ),
        ("source: {files: [x]}", "streams.a.source.files: must be a map, not a list"),
        (
            "source: {files: {format: jsonl}}",
            "streams.a.source.files: the source 'files' needs the option 'path'",
        ),
        ("source: {injection: {port: 3}}", "injection has no options"),
        (
            "source: {generator: {factory: 'nothing:here'}}",
            "streams.a.source.generator.factory: there is no module 'nothing'",
        ),
    ],
)
def test_mistakes_in_a_source_are_named(problems: Any, source: str, expected: str) -> None:
    (found,) = problems(_pipeline("timestamp: ts", source))
    assert expected in found


def test_only_a_source_has_timestamps_and_watermarks(problems: Any) -> None:
    text = _pipeline("timestamp: ts").replace(
        "sinks:", "  b: {timestamp: ts, watermark: {max_delay: 1s}}\nsinks:"
    )
    assert [
        ": only a stream with a source has its own" in problem for problem in problems(text)
    ] == [True, True]


@pytest.mark.parametrize("text", ["ts * 1000", "int(ts)", "ts*1000", "created + 5"])
def test_a_timestamp_that_is_an_expression_is_problems(problems: Any, text: str) -> None:
    [found] = problems(_pipeline(f"timestamp: '{text}'"))
    assert "is an expression, and timestamps are not computed here" in found


@pytest.mark.parametrize("text", ["created-at", "event time", "$ts", "a/b c"])
def test_odd_names_of_fields_are_no_expressions(stream: Any, text: str) -> None:
    assert stream(f"timestamp: '{text}'").timestamp == text
    assert stream("timestamp: 'a * b'\nfields: {'a * b': int}").timestamp == "a * b"


def test_times_are_whole_numbers_once_they_were_read(stream: Any) -> None:
    given = stream(
        "timestamp: at\nfields: {at: timestamp, n: float,"
        " ms: {type: timestamp, unit: ms},"
        " day: {type: timestamp, format: '%d.%m.%Y', zone: Europe/Berlin}}"
    )
    assert given.fields == {"at": "int", "n": "float", "ms": "int", "day": "int"}
    assert given.times == {
        "at": "timestamp",
        "ms": "timestamp ms - -",
        "day": "timestamp - Europe/Berlin %d.%m.%Y",
    }
    assert given.declared == {**given.fields, **given.times}
    assert given.states_unit
    assert not stream("timestamp: ts\nfields: {at: timestamp}").states_unit


@pytest.mark.parametrize(
    ("text", "source", "sentence"),
    [
        (
            "timestamp: {field: at, unit: ms}\nfields: {at: timestamp}",
            "",
            "streams.a.timestamp.unit: at is declared as timestamp, and is in µs once"
            " it was read: write timestamp: at, and the unit below fields, as"
            " {type: timestamp, unit: ms}",
        ),
        (
            "timestamp: at\nfields: {at: {type: timestamp, unit: ms, format: '%Y'}}",
            "",
            "`unit` is for numbers, and `format` for texts",
        ),
        ("timestamp: at\nfields: {at: {unit: ms}}", "", "type"),
        ("timestamp: at\nfields: {at: {type: timestamp, zone: Berlin}}", "", "'Berlin'"),
        ("timestamp: at\nfields: {at: {type: timestamp, format: '%q'}}", "", "%q is not a code"),
        ("timestamp: at\nfields: {at: {type: int}}", "", "timestamp"),
        (
            "timestamp: at\nschema: m:C\nfields: {at: timestamp}",
            "",
            "a class declares the types of its fields itself; remove schema, or fields",
        ),
        (
            "fields: {at: timestamp}",
            "source: {generator: {rate: 1}}",
            "the source 'generator' gives times as whole µs, which expressions take as they are:"
            " write int",
        ),
    ],
)
def test_times_that_cannot_be_meant(problems: Any, text: str, source: str, sentence: str) -> None:
    given = _pipeline(text, source) if source else _pipeline(text)
    assert any(sentence in each for each in problems(given)), problems(given)


def test_results_have_their_times_as_whole_numbers(problems: Any) -> None:
    text = (
        "pipeline: p\nstreams:\n  a: {source: {injection: {}}, timestamp: at, fields: {at:"
        " timestamp}}\n  b: {fields: {at: timestamp}}\n"
        "computations: {c: {input: a, filter: n > 1, output: b}}\nsinks: {b: {stdout: {}}}\n"
    )
    [sentence] = problems(text)
    assert "a computation gives times as whole µs" in sentence


def test_decimals_are_units_inside(stream: Any) -> None:
    given = stream('timestamp: ts\nfields: {price: "decimal( 12,2 )", n: decimal(5)}')
    assert given.decimals == {"price": "decimal(12, 2)", "n": "decimal(5, 0)"}
    assert given.fields == {"price": "int", "n": "int"}
    assert given.declared == given.decimals


@pytest.mark.parametrize(
    ("text", "source", "sentence"),
    [
        ("fields: {d: decimal(12, 2)}", "", 'in braces a comma ends the value; write it in quotes'),
        ("fields: {d: decimal(20)}", "", "has 20 digits; write 1 to 18"),
        ("fields: {d: decimals}", "", "'decimals' is not a decimal; write for example decimal("),
        ("schema: m:C\nfields: {d: decimal(5)}", "", "a class declares the types of its fields"),
        ("fields: {ts: decimal(5)}", "", "ts is the timestamp of the stream"),
        ("fields: {d: decimal(5)}", "source: {files: {path: x, format: apache_combined}}",
         "the source 'files' with the format 'apache_combined' does not give decimals. They are"),
        ("fields: {d: decimal(5)}", "source: {generator: {rate: 5}}",
         "the source 'generator' does not give decimals"),
    ],
)  # fmt: skip
def test_decimals_that_cannot_be(text: str, source: str, sentence: str, problems: Any) -> None:
    source = source or "source: {injection: {}}"
    found = "\n".join(problems(_pipeline(f"timestamp: ts\n{text}", source)))
    assert sentence in found
