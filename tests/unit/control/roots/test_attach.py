from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.control.roots import attach as attach_module
from millwheel.control.roots.attach import LiveMembers, attach, find_root, is_driven
from millwheel.control.roots.root import Root, RunInfo, root_path
from millwheel.errors import SetupError, UnavailableError
from tests.fakes.coordination import FakeZooKeeper


def test_the_root_is_given_or_the_only_one_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_root("/some/root") == Path("/some/root")
    with pytest.raises(SetupError, match="--root"):
        find_root("")
    Root.open(".millwheel/ads", "ads").close()
    assert find_root("") == tmp_path / ".millwheel" / "ads"
    Root.open(".millwheel/weblog", "weblog").close()
    with pytest.raises(SetupError, match=r"none is going on: one of .*ads, .*weblog"):
        find_root("")


def test_a_file_in_the_place_of_a_root_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "visits.yaml").write_text("pipeline: visits\n")
    with pytest.raises(SetupError, match=r"visits.yaml is a file.*by default \.millwheel/"):
        find_root(str(tmp_path / "visits.yaml"))


def test_of_several_roots_the_one_with_a_run_going_on_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Root.open(".millwheel/ads", "ads").close()
    Root.open(".millwheel/old", "old").close()
    running = Root.open(".millwheel/weblog", "weblog")
    assert find_root("") == tmp_path / ".millwheel" / "weblog"
    other = Root.open(".millwheel/ads", "ads")
    with pytest.raises(
        SetupError, match=r"2 runs are going on: one of \.millwheel/ads, \.millwheel/weblog$"
    ):
        find_root("")
    other.close()
    running.close()


def test_only_a_run_that_goes_on_can_be_attached_to(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="not the root of a run"):
        attach(tmp_path)
    root = Root.open(str(tmp_path), "ads")
    info = RunInfo("ads", root.identity.instance, "127.0.0.1:1", 1)
    root.write_run(info)
    assert is_driven(tmp_path)
    assert attach(tmp_path) == info
    root.close()
    assert not is_driven(tmp_path)
    with pytest.raises(SetupError, match="No run is going on"):
        attach(tmp_path)
    assert not is_driven(tmp_path / "none")


def test_members_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = FakeZooKeeper(immediate=True)
    live = LiveMembers(zookeeper.connect(), "workers")
    assert live.now() == {}
    worker = zookeeper.connect()
    worker.join("workers", "w0", b"here")
    assert live.now() == {"w0": b"here"}
    zookeeper.expire(worker)
    assert live.now() == {}


def test_a_zookeeper_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_module, "_ANSWER_S", 0.01)
    silent = FakeZooKeeper()
    with pytest.raises(UnavailableError, match="did not list the workers"):
        LiveMembers(silent.connect(), "workers").now()


def test_a_run_on_an_object_store_is_found_where_its_driver_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match="use the machine of its driver"):
        find_root("s3://bucket/visits")
    root_path("s3://bucket/visits").mkdir(parents=True)
    assert find_root("s3://bucket/visits") == root_path("s3://bucket/visits")
