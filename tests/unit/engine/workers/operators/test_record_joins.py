"""join and enrich in the real runtime, against plain Python, and through crashes at every place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.model.times import BEGINNING
from millwheel.testing import PipelineHarness, assert_survives_crashes

HEAD = """
pipeline: joins
streams:
  shown: {source: {files: {path: a.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
  clicked: {source: {files: {path: b.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  matched:
    input: {shown: {key: ad}, clicked: {key: ad}}
    output: matched
"""
WINDOWS = {
    "tumbling": "{tumbling: 10us}",
    "sliding": "{sliding: 10us, every: 5us}",
    "session": "{session: 4us}",
}
Row = dict[str, Any]


def written(folder: Path, more: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(HEAD + f"    {more}\n")
    return str(path)


def row(at: int, ad: int = 1, what: str = "x") -> Row:
    return {"at": at, "ad": ad, "what": what}


rows = st.lists(
    st.builds(row, st.integers(0, 40), st.integers(1, 2), st.sampled_from("xyz")), max_size=7
)


def text(values: list[Any]) -> list[str]:
    return sorted(json.dumps(value, sort_keys=True) for value in values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("joins")


# --- join


def windows_of(kind: str, stamps: list[int]) -> list[tuple[int, int]]:
    if kind == "tumbling":
        return sorted({(at - at % 10, at - at % 10 + 10) for at in stamps})
    if kind == "sliding":
        return sorted(
            {(start, start + 10) for at in stamps for start in (at - at % 5, at - at % 5 - 5)}
        )
    found: list[tuple[int, int]] = []
    for at in sorted(stamps):
        if found and at < found[-1][1]:
            found[-1] = (found[-1][0], at + 4)
        else:
            found.append((at, at + 4))
    return found


def joined(shown: list[Row], clicked: list[Row], kind: str, how: str) -> list[Row]:
    made = []
    for ad in (1, 2):
        left, right = [r for r in shown if r["ad"] == ad], [r for r in clicked if r["ad"] == ad]
        for start, end in windows_of(kind, [r["at"] for r in (*left, *right)]):
            lefts: list[Any] = [r for r in left if start <= r["at"] < end]
            rights: list[Any] = [r for r in right if start <= r["at"] < end]
            if how in ("semi", "anti"):
                made += lefts if bool(rights) is (how == "semi") else []
                continue
            if not rights and how in ("left", "outer"):
                rights = [None]
            if not lefts and how in ("right", "outer"):
                lefts = [None]
            head = {"ad": ad, "window_start": start, "window_end": end}
            made += [{**head, "shown": one, "clicked": other} for one in lefts for other in rights]
    return made


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
@given(shown=rows, clicked=rows, mixed=st.booleans())
@settings(max_examples=4, deadline=None)
def test_a_join_says_the_pairs_of_each_window(
    folder: Path, kind: str, how: str, shown: list[Row], clicked: list[Row], mixed: bool
) -> None:
    pipeline = written(folder / f"{kind}-{how}", f"window: {WINDOWS[kind]}\n    join: {how}")
    with PipelineHarness(pipeline) as harness:
        for stream, values in (("clicked", clicked), ("shown", shown)):
            for value in values if mixed else []:
                harness.push(stream, value)
            harness.push(stream, [] if mixed else values)
        assert harness.read("matched") == []
        harness.finish()
        assert text(harness.read("matched")) == text(joined(shown, clicked, kind, how))


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_a_join_survives_crashes(folder: Path, kind: str) -> None:
    pipeline = written(folder / f"crash-{kind}", f"window: {WINDOWS[kind]}\n    join: outer")
    records = {"shown": [row(1), row(12), row(3, ad=2)], "clicked": [row(2), row(25), row(14)]}
    assert assert_survives_crashes(pipeline, records, every=13) > 4


# --- enrich


def enriched(shown: list[Row], clicked: list[Row], missing: str) -> list[Row]:
    made = []
    for record in shown:
        known = [r for r in clicked if r["ad"] == record["ad"] and r["at"] <= record["at"]]
        latest = max(known, key=lambda r: r["at"], default=None)
        if latest is not None or missing == "keep":
            made.append({**record, "last": latest})
    return made


@pytest.mark.parametrize("missing", ["keep", "drop", "dead_letter"])
@given(shown=rows, clicked=rows)
@settings(max_examples=12, deadline=None)
def test_a_record_is_enriched_as_of_its_own_time(
    folder: Path, missing: str, shown: list[Row], clicked: list[Row]
) -> None:
    clicked = list({(r["ad"], r["at"]): r for r in clicked}.values())
    pipeline = written(folder / missing, f"enrich: {{with: clicked, as: last, missing: {missing}}}")
    expected = enriched(shown, clicked, missing)
    with PipelineHarness(pipeline) as harness:
        harness.push("shown", shown)
        assert harness.read("matched") == []
        harness.push("clicked", clicked)
        harness.finish()
        assert text(harness.read("matched")) == text(expected)
        lost = len(shown) - len(expected)
        assert harness.counters.get("unmatched", 0) == (lost if missing == "drop" else 0)
        assert len(harness.read("dead_letters")) == (lost if missing == "dead_letter" else 0)


@given(shown=rows, clicked=rows, mixed=st.permutations(range(14)))
@settings(max_examples=20, deadline=None)
def test_a_version_does_not_depend_on_the_order_of_arrival(
    folder: Path, shown: list[Row], clicked: list[Row], mixed: list[int]
) -> None:
    clicked = list({(r["ad"], r["at"]): r for r in clicked}.values())
    records = [*(("shown", r) for r in shown), *(("clicked", r) for r in clicked)]
    with PipelineHarness(written(folder / "mixed", "enrich: {with: clicked, as: last}")) as harness:
        for index in mixed:
            if index < len(records):
                harness.push(*records[index])
        harness.finish()
        assert text(harness.read("matched")) == text(enriched(shown, clicked, "keep"))


def test_records_of_a_schema_are_enriched_with_records_of_a_schema(folder: Path) -> None:
    pipeline = Path(written(folder / "typed", "enrich: {with: clicked}"))
    fields = (
        "import msgspec\n\n\nclass Row(msgspec.Struct):\n    at: int\n    ad: int\n    what: str\n"
    )
    (pipeline.parent / "join_rows.py").write_text(fields)
    pipeline.write_text(
        pipeline.read_text().replace("timestamp:", 'schema: "join_rows:Row", timestamp:')
    )
    with PipelineHarness(str(pipeline)) as harness:
        harness.push("clicked", row(3))
        harness.push("shown", row(5))
        harness.finish()
        assert harness.read("matched") == [{**row(5), "clicked": row(3)}]


def test_enrichment_survives_crashes(folder: Path) -> None:
    records = {
        "shown": [row(4), row(9), row(2, ad=2)],
        "clicked": [row(3), row(8, what="y"), row(1)],
    }
    assert (
        assert_survives_crashes(
            written(folder / "crash", "enrich: {with: clicked}"), records, every=13
        )
        > 3
    )


# --- enrich: tables and retractions


TABLES = """
pipeline: joins
streams:
  shown: {source: {injection: {}}, timestamp: {field: at, unit: us}, table: what}
  clicked:
    source: {injection: {}}
    timestamp: {field: at, unit: us}
    table: {key: ad, delete: gone}
  sizes: {source: {files: {path: s.jsonl, format: jsonl}}, table: ad}
computations:
  matched:
    input: {shown: {key: ad}, OTHER: {key: ad}}
    enrich: {with: OTHER, as: other, missing: MISSING}
    output: matched
sinks: {matched: {stdout: {mode: changelog}}}
"""


def of_tables(folder: Path, other: str, missing: str = "keep") -> Path:
    path = folder / "tables.yaml"
    path.write_text(TABLES.replace("OTHER", other).replace("MISSING", missing))
    return path


def version(at: int, n: int, gone: bool = False) -> Row:
    return {"at": at, "ad": 1, "n": n, "gone": gone}


def test_a_deleted_row_is_no_version_from_its_time_on(tmp_path: Path) -> None:
    with PipelineHarness(of_tables(tmp_path, "clicked")) as harness:
        harness.push("clicked", [version(5, 1), version(8, 0, gone=True), version(12, 2)])
        harness.push("shown", [row(at, what=str(at)) for at in (4, 5, 7, 8, 11, 12)])
        harness.advance_watermark(20)
        got = harness.take("matched")
    assert [(each["at"], each["other"] and each["other"]["n"]) for each in got] == [
        (4, None),
        (5, 1),
        (7, 1),
        (8, None),
        (11, None),
        (12, 2),
    ]


@pytest.mark.parametrize("missing", ["keep", "drop"])
def test_what_is_taken_back_is_taken_back_with_its_version(missing: str, tmp_path: Path) -> None:
    """``shown`` is a table itself: a row that changes takes its result back."""
    with PipelineHarness(of_tables(tmp_path, "clicked", missing)) as harness:
        harness.push("clicked", [version(5, 1), version(9, 2)])
        harness.push("shown", [row(3, what="none"), row(6, what="x")])
        harness.advance_watermark(7)
        first = harness.take("matched")
        assert [each["other"] and each["other"]["n"] for each in first] == (
            [None, 1] if missing == "keep" else [1]
        )
        harness.crash()
        harness.push("shown", [row(10, what="x"), row(11, what="none")])
        harness.advance_watermark(20)
        got = harness.take("matched")
    backs = [each for each in got if "__retraction__" in each]
    assert [{k: v for k, v in each.items() if k != "__retraction__"} for each in backs] == first[
        ::-1
    ]
    assert [each["other"]["n"] for each in got if each not in backs] == [2, 2]


def test_a_version_that_is_taken_back_ends(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        HEAD.replace(", clicked: {key: ad}", ", best: {key: ad}")
        + "    enrich: {with: best}\n"
        + "  best: {input: {clicked: {key: what}}, top: {by: [n desc], k: 1}, output: best}\n"
    )
    with PipelineHarness(path) as harness:
        harness.push("clicked", {**row(2, ad=1), "n": 1})
        harness.push("clicked", {**row(6, ad=2), "n": 5})
        harness.push("shown", [row(at, ad=1) for at in (3, 7)])
        harness.advance_watermark(20)
        got = harness.read("matched")
    assert [each["best"] and each["best"]["n"] for each in got] == [1, None]


@pytest.mark.parametrize("crash_every", [None, 3, 5])
def test_a_table_without_times_is_waited_for_and_no_longer(
    crash_every: int | None, tmp_path: Path
) -> None:
    with PipelineHarness(of_tables(tmp_path, "sizes"), crash_every=crash_every) as harness:
        harness.push("shown", [row(4, what="x"), row(5, what="y")])
        harness.push("sizes", {"ad": 1, "n": 1}, key="b")
        harness.push("sizes", {"ad": 1, "n": 2}, key="b")
        harness.push("sizes", {"ad": 1, "n": 3}, key="a")
        harness.advance_watermark(50, "shown")
        assert harness.take("matched") == []
        harness.finish("sizes")
        assert sorted((each["at"], each["other"]["n"]) for each in harness.take("matched")) == [
            (4, 2),
            (5, 2),
        ]
        harness.push("shown", [row(60, what="z"), row(61, ad=7, what="y")])
        got = harness.take("matched")
    assert [(each["at"], each["other"] and each["other"]["n"]) for each in got] == [
        (60, 2),
        (5, 2),
        (61, None),
    ]


@pytest.mark.parametrize("crash_every", [None, 1, 2])
def test_records_wait_for_the_table_and_not_for_their_own_watermark(
    crash_every: int | None, tmp_path: Path
) -> None:
    with PipelineHarness(of_tables(tmp_path, "sizes"), crash_every=crash_every) as harness:
        harness.push("shown", row(BEGINNING, what="x"))
        harness.push("sizes", {"ad": 1, "n": 1})
        harness.finish("sizes")
        harness.push("shown", row(BEGINNING, what="y"))
        got = harness.take("matched")
    assert [(each["what"], each["other"]["n"]) for each in got] == [("x", 1), ("y", 1)]
