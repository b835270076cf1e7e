"""Which objects are partitions, and what a listing costs."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from typing import Any

import pytest
from obstore.store import MemoryStore

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.connect.kinds import build_source
from millwheel.connect.sources.files import objects
from millwheel.connect.sources.files.objects import LIST_S, WHOLE_LISTING_S, ObjectsSource
from millwheel.core.pipeline.spec import SourceSpec
from millwheel.errors import ExhaustedError, SetupError, UnavailableError


class Store(ObjectStore):
    """A bucket in memory that remembers where listings began."""

    def __init__(self, *keys: str) -> None:
        super().__init__(ObjectAddress("s3", "bucket", ""), {})
        self._client = MemoryStore()
        self.listed: list[tuple[str, str]] = []
        self.away = False
        for key in keys:
            self.stage(key, b"{}\n")

    def list(self, prefix: str, after: str = "") -> Any:
        if self.away:
            raise UnavailableError("no answer")
        self.listed.append((prefix, after))
        return super().list(prefix, after)


def source(
    store: Store, *patterns: str, follow: bool = False, rising: bool = False, now: Any = None
) -> ObjectsSource:
    clock = now or itertools.count(step=LIST_S).__next__  # it is always time for another listing
    return ObjectsSource(store, patterns, follow, rising, lambda key, content: None, clock, at_once)  # type: ignore[arg-type,return-value]


def at_once(listing: Any) -> Future[Any]:
    found: Future[Any] = Future()
    try:
        found.set_result(listing())
    except UnavailableError as ex:
        found.set_exception(ex)
    return found


def test_a_listing_that_takes_long_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_FIRST_LIST_S", 0.0)
    store, begun = Store("in/1"), []

    def later(listing: Any) -> Future[Any]:
        begun.append((Future(), listing))
        return begun[-1][0]

    clock = itertools.count(step=LIST_S).__next__
    watched = ObjectsSource(store, ["in/*"], True, False, lambda key, content: None, clock, later)  # type: ignore[arg-type,return-value]
    with pytest.raises(ExhaustedError, match="not been listed yet"):
        watched.partitions()
    begun[0][0].set_result(begun[0][1]())
    assert [partition.name for partition in watched.partitions()] == ["1"]
    store.stage("in/2", b"x")
    assert [partition.name for partition in watched.partitions()] == ["1"]
    begun[1][0].set_result(begun[1][1]())
    assert [partition.name for partition in watched.partitions()] == ["1", "2"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("in/*.jsonl", ["a.jsonl", "b.jsonl"]),
        ("in", ["a.jsonl", "b.jsonl", "c.csv"]),
        ("in/a.jsonl", ["a.jsonl"]),
        ("in/**/*.jsonl", ["a.jsonl", "b.jsonl", "day=1/d.jsonl"]),
        ("in/[ab].jsonl", ["a.jsonl", "b.jsonl"]),
        ("in/[!a].jsonl", ["b.jsonl"]),
        ("in/?.csv", ["c.csv"]),
        ("in/day=*/*", ["day=1/d.jsonl"]),
    ],
)
def test_patterns_match_as_in_a_shell(pattern: str, names: list[str]) -> None:
    store = Store(
        "in/a.jsonl",
        "in/b.jsonl",
        "in/c.csv",
        "in/_SUCCESS",
        "in/.hidden/x.jsonl",
        "in/day=1/d.jsonl",
    )
    store.stage("other/x", b"x")
    found = [
        partition.name.removeprefix("in/") for partition in source(store, pattern).partitions()
    ]
    assert sorted(found) == names


def test_a_bounded_source_without_objects_is_refused() -> None:
    with pytest.raises(SetupError, match=r"no object matches s3://bucket/in/\*"):
        source(Store(), "in/*").partitions()
    assert source(Store(), "in/*", follow=True).partitions() == []


def test_names_are_below_the_folder_that_all_patterns_share() -> None:
    store = Store("in/a/1", "in/b/2")
    assert sorted(p.name for p in source(store, "in/a/*", "in/b/*").partitions()) == ["a/1", "b/2"]


def test_a_replaced_object_has_another_version() -> None:
    store = Store("in/a")
    watched = source(store, "in/*", follow=True)
    [before] = watched.partitions()
    store.stage("in/a", b"[]\n")
    [after] = watched.partitions()
    assert before.version != after.version


def test_with_rising_names_a_listing_goes_on_behind_the_last_name() -> None:
    store, now = Store("in/1", "in/2"), [0.0]
    watched = source(store, "in/*", follow=True, rising=True, now=lambda: now[0])
    assert len(watched.partitions()) == 2
    now[0] += LIST_S
    store.stage("in/3", b"x")
    store.stage("in/0", b"x")
    assert [p.name for p in watched.partitions()] == ["1", "2", "3"]
    assert store.listed == [("in/", ""), ("in/", "in/2")]
    now[0] += WHOLE_LISTING_S
    assert [p.name for p in watched.partitions()] == ["0", "1", "2", "3"]


def test_a_store_that_is_away_is_asked_again() -> None:
    store = Store("in/1")
    store.away = True
    with pytest.raises(ExhaustedError):
        source(store, "in/*", follow=True).partitions()
    with pytest.raises(SetupError):
        source(store, "in/*").partitions()
    with pytest.raises(SetupError):
        source(store, "in/*", follow=True).check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": ["s3://bucket/a", "b"]}, "mixes buckets"),
        ({"path": ["s3://bucket/a", "s3://other/b"]}, "mixes buckets"),
        ({"path": "in", "names": "rising"}, "option 'names' is for object stores"),
        ({"path": "in", "config": {"region": "x"}}, "option 'config' is for object stores"),
        ({"path": "s3://bucket/a", "names": "falling"}, "option 'names' is 'falling'"),
        ({"path": "ftp://host/a"}, "nothing here reads or writes ftp://"),
    ],
)
def test_options_that_cannot_work_are_refused_with_a_sentence(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        build_source(SourceSpec("files", {"format": "jsonl", **options}), "/")


def test_files_of_this_machine_may_be_urls(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    built = build_source(
        SourceSpec("files", {"path": f"file://{tmp_path}/*.jsonl", "format": "jsonl"}), "/elsewhere"
    )
    assert [partition.name for partition in built.partitions()] == ["a.jsonl"]
