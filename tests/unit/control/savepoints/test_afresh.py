"""``--fresh`` removes what a root remembers and the results that belong to it, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.connect.kinds import build_sink
from millwheel.control.roots.root import IDENTITY, Root
from millwheel.control.roots.shipping import ship
from millwheel.control.savepoints.afresh import begin_afresh, refuse_foreign
from millwheel.control.savepoints.upgrade import blueprint_bytes
from millwheel.errors import SetupError
from millwheel.language.spec import load_pipeline

YAML = """
pipeline: p
streams:
  a: {source: {files: {path: "in/*.jsonl", format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  c: {input: {a: {key: k}}, callback: "cb:C", output: o}
sinks:
  o: {files: {path: out%s}}
"""
CODE = """
from millwheel import Computation
class C(Computation):
    def process_record(self, ctx, record):
        ctx.produce("o", 1)
"""


@pytest.fixture
def used(tmp_path: Path) -> Iterator[Root]:
    """The root of a former run, with results in ``out`` and ``out2``."""
    (tmp_path / "cb.py").write_text(CODE)
    (tmp_path / "p.yaml").write_text(YAML % "2")
    root = Root.open(str(tmp_path / "root"), "p")
    spec = load_pipeline(str(tmp_path / "p.yaml"), {})
    ship(tmp_path / "p.yaml", {}, root.path, spec, blueprint_bytes(spec))
    (root.path / "journal").mkdir()
    (root.path / "COMPLETED").write_text("{}")
    for name, option in (("out2", "2"), ("out", "")):
        (tmp_path / "p.yaml").write_text(YAML % option)
        for sink in load_pipeline(str(tmp_path / "p.yaml"), {}).sinks:
            build_sink(sink, str(tmp_path)).check(str(root.identity))
        (tmp_path / name / "part-sink.o-0-00000000.jsonl").write_text("{}\n")
        (tmp_path / name / "notes.txt").write_text("mine")
    yield root
    root.close()


def afresh(root: Root, from_savepoint: str = "", zookeeper: str = "") -> list[str]:
    told: list[str] = []
    file = root.path.parent / "p.yaml"
    begin_afresh(root, load_pipeline(str(file), {}), from_savepoint, zookeeper, told.append)
    return told


def test_a_root_and_the_results_of_the_former_and_the_new_pipeline_are_removed(
    used: Root, tmp_path: Path
) -> None:
    before = str(used.identity)
    [told] = afresh(used)
    assert "begins anew" in told
    assert str(used.identity) != before
    assert sorted(os.listdir(used.path)) == ["driver.lock", IDENTITY]
    assert os.listdir(tmp_path / "out") == os.listdir(tmp_path / "out2") == ["notes.txt"]
    assert afresh(used) == []  # a new root has nothing to forget


def test_results_of_another_root_stay(used: Root, tmp_path: Path) -> None:
    (tmp_path / "out" / ".millwheel" / "results-of").write_text("p-another")
    nested = tmp_path / "out2" / "day=1"
    (nested / ".millwheel").mkdir(parents=True)
    (nested / ".millwheel" / "results-of").write_text("p-another")
    (nested / "part-x.jsonl").write_text("{}\n")
    afresh(used)
    assert (tmp_path / "out" / "part-sink.o-0-00000000.jsonl").exists()
    assert (nested / "part-x.jsonl").exists()
    assert not (tmp_path / "out2" / "part-sink.o-0-00000000.jsonl").exists()


@pytest.mark.parametrize(
    ("inside", "settings", "words"),
    [
        ("other/identity.json", {}, "belongs to another run"),
        ("results/x/.millwheel/results-of", {}, "belongs to another run"),
        ("", {"from_savepoint": "saved"}, "leave one of them out"),
        ("", {"zookeeper": "host:2181/x"}, "cannot empty ZooKeeper"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_removed(
    used: Root, inside: str, settings: dict[str, str], words: str
) -> None:
    if inside:
        file = used.path / inside
        file.parent.mkdir(parents=True)
        file.write_text('{"pipeline":"q","instance":"1"}' if inside.endswith("json") else "q-1")
    with pytest.raises(SetupError, match=words):
        afresh(used, **settings)
    assert (used.path / "COMPLETED").exists()
    assert (used.path.parent / "out" / "part-sink.o-0-00000000.jsonl").exists()


def test_a_root_that_was_half_emptied_is_emptied_by_whoever_opens_it(used: Root) -> None:
    (used.path / f".{IDENTITY}.emptying").touch()
    used.close()
    again = Root.open(str(used.path), "p")
    again.close()
    assert sorted(os.listdir(again.path)) == ["driver.lock", IDENTITY]


def test_a_root_that_is_in_use_cannot_be_taken(used: Root) -> None:
    with pytest.raises(SetupError, match="going on already"):
        Root.open(str(used.path), "p")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    root = Root.open(str(tmp_path / "root"), "p")
    yield root
    root.close()


def results(folder: Path, owner: str) -> None:
    (folder / ".millwheel").mkdir(parents=True)
    (folder / ".millwheel" / "results-of").write_text(owner)


def test_a_root_with_its_own_results_may_be_emptied(root: Root, tmp_path: Path) -> None:
    results(root.path / "out" / "day=1", str(root.identity))
    results(tmp_path / "beside", "q-1")
    (root.path / "notes.txt").write_text("mine")
    refuse_foreign(root, [tmp_path / "beside", tmp_path])


def test_another_root_inside_is_told_with_its_place(root: Root) -> None:
    inner = root.path / "deep" / "other"
    inner.mkdir(parents=True)
    (inner / IDENTITY).write_text('{"pipeline": "q", "instance": "1"}')
    with pytest.raises(
        SetupError, match=r"deep/other in the root .* belongs to another run \(q-1\)"
    ):
        refuse_foreign(root, [])


@pytest.mark.parametrize("place", ["", "out"])
def test_results_of_another_run_are_told_with_it(root: Root, place: str) -> None:
    results(root.path / place, "q-2")
    with pytest.raises(SetupError, match=r"belongs to another run \(q-2\)"):
        refuse_foreign(root, [])


def test_what_the_new_run_reads_may_not_lie_in_the_root_even_behind_a_link(
    root: Root, tmp_path: Path
) -> None:
    (root.path / "input").mkdir()
    (tmp_path / "link").symlink_to(root.path / "input")
    for needed in (root.path / "input", tmp_path / "link", root.path):
        with pytest.raises(SetupError, match="which would be emptied; give a new --root"):
            refuse_foreign(root, [needed])


def test_a_mark_that_cannot_be_read_names_no_owner(root: Root) -> None:
    results(root.path / "out", "")
    (root.path / "out" / ".millwheel" / "results-of").write_bytes(b"\xff\xfe")
    refuse_foreign(root, [])
