"""Names of fields in keys, aggregates and sinks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millwheel.errors import PipelineError
from millwheel.language.spec.pipelines import check_pipeline

CODE = """
import msgspec

class Click(msgspec.Struct):
    at: int
    page: str
    user: str
    size: int = 0
"""
TEXT = """
pipeline: p
streams:
  clicks: {{source: {{injection: {{}}}}, timestamp: at, {declared}}}
computations:
  c:
    input: {{clicks: {{key: {key}}}}}
    window: {{tumbling: 1m}}
    aggregate: {{total: {{sum: {field}}}}}
    output: out
sinks:
  out: {{stdout: {{}}}}
"""


@pytest.fixture
def checked(folder: Path) -> Any:
    def run(declared: str, key: str = "page", field: str = "size") -> list[str]:
        (folder / "named_fields.py").write_text(CODE)
        (folder / "p.yaml").write_text(TEXT.format(declared=declared, key=key, field=field))
        return check_pipeline(folder / "p.yaml")[1]

    return run


CLASS = "schema: 'named_fields:Click'"
SOME = "fields: {at: int, page: str, size: int}"


def test_names_that_are_there_are_right(checked: Any) -> None:
    assert checked(CLASS) == checked(SOME) == []
    assert checked(CLASS, key="[page, user]", field="size + 1") == []


def test_a_class_has_no_other_fields(checked: Any) -> None:
    with pytest.raises(
        Exception,
        match=r"input.clicks.key: the stream 'clicks' has no field 'pgae'; did you mean 'page'\?",
    ):
        checked(CLASS, key="pgae")
    with pytest.raises(
        PipelineError, match=r"'sizes'; did you mean 'size'\?; known: at, page, size, user"
    ):
        checked(CLASS, field="sizes")
    with pytest.raises(PipelineError, match="has no field 'zzz'; known"):
        checked(CLASS, key="[page, zzz]")


def test_declared_fields_are_some_of_all_so_a_name_that_nearly_is_one_is_a_warning(
    checked: Any,
) -> None:
    [warning] = checked(SOME, key="paje")
    assert "the stream 'clicks' has no declared field 'paje'; did you mean 'page'?" in warning
    assert checked(SOME, key="country") == []


MORE = """
pipeline: p
streams:
  clicks: {source: {injection: {}}, timestamp: at, schema: "named_fields:Click"}
  others: {source: {injection: {}}, timestamp: at, schema: "named_fields:Click"}
computations:
  big: {input: clicks, filter: size > 10, output: big}
  once: {input: {big: {key: page}}, deduplicate: {by: [user], within: 1m}, output: once}
  sums: {input: {once: {key: page}}, window: {tumbling: 1m}, aggregate: {total: {sum: size}},
    output: sums}
  tops: {input: {sums: {key: total}}, window: {of: input}, aggregate: {pages: count}, output: tops}
  pairs: {input: {big: {key: page}, others: {key: page}}, window: {tumbling: 1m}, join: inner,
    output: pairs}
  rich: {input: {big: {key: page}, others: {key: page}}, enrich: {with: others, as: other},
    output: rich}
sinks:
  tops: {stdout: {}}
  sums: {files: {path: out, format: csv, mode: upsert, by: page, fields: {page: str, total: int}}}
  rich: {files: {path: rich, partition_by: [page]}}
  pairs: {files: {path: pairs, partition_by: [page], with_key: true}}
"""


def more(folder: Path, right: str, wrong: str) -> str:
    """What is said of the pipeline with a mistake, errors and warnings alike."""
    assert right in MORE
    (folder / "named_fields.py").write_text(CODE)
    (folder / "p.yaml").write_text(MORE.replace(right, wrong))
    try:
        return "\n".join(check_pipeline(folder / "p.yaml")[1])
    except PipelineError as error:
        return f"error {error}"


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("size > 10", "sise > 10",
        "computations.big.filter: the stream 'clicks' has no field 'sise'"),
        ("by: [user]", "by: [usr]", "error .*deduplicate: the stream 'big' has no field 'usr'"),
        ("once: {key: page}", "once: {key: pge}",
        "error .*input.once.key: the stream 'once' has no field 'pge'"),
        ("sum: size", "sum: sizes",
        "error .*aggregate.total: the stream 'once' has no field 'sizes'"),
        ("by: page, fields", "by: pag, fields",
        "error .*sinks.sums.files.by: the stream 'sums' has no field 'pag'"),
        ("total: int", "totl: int",
        "sinks.sums.files.fields: the stream 'sums' has no field 'totl'"),
        ("rich, partition_by: [page]", "rich, partition_by: [othr]",
        "the stream 'rich' has no field 'othr'"),
        ("pairs, partition_by: [page]", "pairs, partition_by: [pge]",
        "the stream 'pairs' has no field 'pge'"),
        ("of: input", "of: input, start: window_starts",
        "error .*computations.tops.window: the stream 'sums' has no field 'window_starts'"),
        ("sum: size", "sum: size, where: sise",
        "^[^ ]+ computations.sums.aggregate.total.where: the stream 'once' has no field 'sise'"),
        ("others: {key: page}}, window", "others: {key: paeg}}, window",
        "error .*pairs.input.others.key: .*'paeg'"),
        ("others: {key: page}}, enrich", "others: {key: paeg}}, enrich",
        "error .*rich.input.others.key: .*'paeg'"),
    ],
)  # fmt: skip
def test_names_are_checked_down_the_graph(folder: Path, right: str, wrong: str, said: str) -> None:
    assert more(folder, right, right) == ""
    assert re.search(f"{said}; did you mean", more(folder, right, wrong)), more(
        folder, right, wrong
    )


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("sum: size", "sum: big.size * 2",
        "computations.sums.aggregate.total: the stream 'once' has no field 'big'; known: at"),
        ("size > 10", "has(weight)",
        "computations.big.filter: the stream 'clicks' has no field 'weight'; known: at, page"),
        ("once: {key: page}", "once: {key: page.name}",
        "once.key: the stream 'once' has no field 'page.name'; a key that is computed has"
        " a name: key: {name: page.name}; known"),
        ("once: {key: page}", "once: {key: pages.name}",
        "once.key: the stream 'once' has no field 'pages.name'; known"),
    ],
)  # fmt: skip
def test_names_that_resemble_none_are_checked_too(
    folder: Path, right: str, wrong: str, said: str
) -> None:
    found = more(folder, right, wrong)
    assert said in found
    assert found.startswith("error") == ("key" in right)


def test_a_bound_of_an_interval_names_a_field_of_its_input(folder: Path) -> None:
    text = """
pipeline: p
streams:
  clicks: &one {source: {injection: {}}, timestamp: at, fields: {at: int, page: str, ends: int}}
  views: *one
computations:
  c:
    input: {clicks: {key: page}, views: {key: page}}
    join: {kind: inner, within: {until: clicks.BOUND}}
    output: out
sinks:
  out: {stdout: {}}
"""
    for bound, words in (("ends", []), ("end", ["did you mean 'ends'?"])):
        (folder / "p.yaml").write_text(text.replace("BOUND", bound))
        warnings = check_pipeline(folder / "p.yaml")[1]
        assert len(warnings) == len(words)
        assert all(word in said for word, said in zip(words, warnings, strict=True))


def test_the_fields_of_a_table_are_checked(folder: Path) -> None:
    (folder / "named_fields.py").write_text(CODE)
    table = "table: {key: pgae, delete: sise > 1}"
    text = (
        "pipeline: p\nstreams: {clicks: {source: {injection: {}}, timestamp: at, TYPES, TABLE}}\n"
    )
    text += "sinks: {clicks: {stdout: {mode: changelog}}}\n"
    file = folder / "p.yaml"
    file.write_text(text.replace("TYPES", SOME).replace("TABLE", table))
    said = "\n".join(check_pipeline(file)[1])
    assert "clicks.table.key: the stream 'clicks' has no declared field 'pgae'" in said
    assert "clicks.table.delete: the stream 'clicks' has no declared field 'sise'" in said
    file.write_text(text.replace("TYPES", CLASS).replace("TABLE", table))
    with pytest.raises(PipelineError, match=r"clicks.table.key: .* no field 'pgae'"):
        check_pipeline(file)


PAIRS = """
pipeline: p
streams:
  clicks: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, user: str, price: float}}
  views: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, user: str, page: str}}
computations:
  c: {input: {clicks: {key: user}, views: {key: user}}, join: inner, window: {tumbling: 1m},
      output: pairs}
  d: {input: pairs, map: {x: "TEXT", y: user}, output: rows}
  e: {input: {rows: {key: KEY}}, window: {tumbling: 1m}, aggregate: {n: count}, output: out}
sinks:
  out: {stdout: {}}
"""


def test_a_misspelt_field_of_a_side_of_a_join_is_named(folder: Path) -> None:
    def warnings(text: str) -> list[str]:
        file = folder / "p.yaml"
        file.write_text(PAIRS.replace("TEXT", text).replace("KEY", "y"), encoding="utf-8")
        return check_pipeline(file)[1]

    [warning] = warnings("clicks.prise * 2")
    assert "p.yaml:9: computations.d.map.x: clicks has no known field 'prise'; did you" in warning
    assert "mean 'price'?" in warning
    assert warnings("clicks.price * 2") == warnings("views.other") == []


@pytest.mark.parametrize(
    ("fields", "timestamp", "hint"),
    [
        ("at: timestamp, n: int", "att", "did you mean 'at'?"),
        ("at: timestamp, n: int", "at", ""),
        ("n: int", "happened", ""),
    ],
)
def test_a_timestamp_that_nearly_is_a_field_is_named(
    folder: Path, fields: str, timestamp: str, hint: str
) -> None:
    file = folder / "p.yaml"
    text = PAIRS.replace("at: timestamp, user: str, page: str", fields).replace(
        "timestamp: at, fields: {" + fields, f"timestamp: {timestamp}, fields: {{{fields}"
    )
    file.write_text(text.replace("TEXT", "user").replace("KEY", "y"), encoding="utf-8")
    warnings = [each for each in check_pipeline(file)[1] if "views.timestamp" in each]
    assert [hint in each for each in warnings] == [True] * bool(hint)
