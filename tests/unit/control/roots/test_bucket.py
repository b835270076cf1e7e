from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_journals
from millwheel.control.roots.bucket import BucketRoot
from millwheel.control.roots.lease import LeasePace
from millwheel.control.roots.root import Root, read_completed
from millwheel.control.roots.shipping import with_defaults
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec, SinkSpec
from millwheel.errors import SetupError
from tests.fakes.buckets import BucketServer


@pytest.fixture
def folder(bucket_server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return bucket_server.root()


def opened(folder: str, pipeline: str = "ads") -> BucketRoot:
    return BucketRoot.at(
        folder, pipeline, lambda sentence: None, LeasePace(silent_s=1.0, look_s=0.1)
    )


def test_a_root_keeps_its_identity_and_its_summary_for_every_machine(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = opened(folder)
    assert root.completed() is None
    assert not root.used()
    root.complete({"records_in": 7})
    assert read_completed(root.path) == {"records_in": 7}
    root.close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = opened(folder)
    assert again.identity == root.identity
    assert again.path != root.path
    assert again.completed() == {"records_in": 7}
    again.close()


def test_a_root_is_driven_once_on_this_machine_and_everywhere(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = opened(folder)
    with pytest.raises(SetupError, match="going on already"):
        opened(folder)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr("millwheel.control.roots.lease._here", lambda: "another machine")
    root._lease._ended.set()  # it is silent, and taken from
    opened(folder).close()
    root.close()


def test_a_root_of_another_pipeline_or_of_something_else_is_refused(
    bucket_server: BucketServer, folder: str
) -> None:
    opened(folder).close()
    with pytest.raises(SetupError, match="belongs to the pipeline 'ads'"):
        opened(folder, "visits")
    opened(folder).close()
    space = bucket_server.space()
    space.create(f"{space.root}/holiday.jpg", b"")
    with pytest.raises(SetupError, match=r"holiday\.jpg.*not a root of a pipeline"):
        opened(space.root)


def test_a_folder_of_an_earlier_root_at_the_same_address_is_refused(
    bucket_server: BucketServer, folder: str
) -> None:
    opened(folder).close()
    bucket_server.space(folder).delete(f"{folder}/identity.json")
    with pytest.raises(SetupError, match="earlier root at the same address"):
        opened(folder)


def test_a_root_with_journals_is_used(folder: str) -> None:
    root = opened(folder)
    open_journals(folder).create("w1")
    assert root.used()
    root.close()


def test_a_store_that_does_not_answer_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match="names no bucket"):
        opened("s3://B/x")


def test_what_needs_a_folder_is_refused_when_workers_are_far(folder: str) -> None:
    root = opened(folder)
    bare = PipelineSpec("ads", (), (), (), "")
    spec = with_defaults(bare, str(root.path))
    root.check_reach(spec, far=False)
    with pytest.raises(SetupError, match="name a sink for them"):
        root.check_reach(spec, far=True)
    named = replace(bare, sinks=(SinkSpec(DEAD_LETTERS, "files", {"path": "/shared/dead"}),))
    root.check_reach(with_defaults(named, str(root.path)), far=True)
    with pytest.raises(SetupError, match="sink of 'alerts' prints"):
        root.check_reach(
            replace(named, sinks=(*named.sinks, SinkSpec("alerts", "stdout"))), far=True
        )
    assert root.logs_of_workers(far=True) == ""
    root.close()


def test_a_folder_has_no_such_limits(tmp_path: Path) -> None:
    root = Root.open(str(tmp_path / "root"), "ads")
    root.check_reach(with_defaults(PipelineSpec("ads", (), (), (), ""), str(root.path)), far=True)
    assert root.logs_of_workers(far=True)
    root.close()
