from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millwheel.control.roots.root import Root, identity_of
from millwheel.control.roots.shipment import fetched, pack, share, shared_folder, unpack
from millwheel.errors import CorruptionError, SetupError
from tests.fakes.s3_server import S3Server


def filled(folder: Path, text: str = "pipeline: p") -> Path:
    for name, content in {
        "pipeline/p.yaml": text,
        "pipeline/deep/x.py": "",
        "inputs/s.json": "[]",
        "restored.json": "{}",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_was_packed_comes_out_in_the_place_of_what_was_there(tmp_path: Path) -> None:
    data = pack(filled(tmp_path / "a"))
    filled(tmp_path / "b", "old")
    (tmp_path / "b" / "pipeline" / "gone.py").write_text("")
    unpack(data, tmp_path / "b")
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


@pytest.mark.parametrize(
    "name", ["../x", "pipeline/../../x", "/etc/x", "other/x", "pipeline", "", "pipeline/\0"]
)
def test_names_that_lead_elsewhere_are_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    filled(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(CorruptionError, match="which cannot be"):
        unpack(msgspec.msgpack.encode({"pipeline/a": b"", name: b""}), tmp_path)
    assert contents(tmp_path) == before


def test_bytes_that_are_no_shipment_are_told(tmp_path: Path) -> None:
    for data in (
        b"",
        b"\xc1",
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode({"pipeline/a": 7}),
    ):
        with pytest.raises(CorruptionError, match="holds no files"):
            unpack(data, tmp_path)


def test_processes_get_what_the_driver_shared_last(s3: S3Server, tmp_path: Path) -> None:
    s3.fail()
    space = s3.space()
    with pytest.raises(SetupError, match="holds no pipeline"):
        fetched(space.root, str(tmp_path / "w"))
    for text in ("one", "two", "two"):
        share(space, filled(tmp_path / "driver", text))
    assert fetched(space.root, str(tmp_path / "w")) == str(tmp_path / "w")
    assert (tmp_path / "w" / "pipeline" / "p.yaml").read_text() == "two"
    with shared_folder(space.root) as folder:
        assert (Path(folder) / "inputs" / "s.json").read_text() == "[]"
    assert not Path(folder).exists()


def test_a_folder_needs_no_copy(tmp_path: Path) -> None:
    assert fetched(str(tmp_path), "elsewhere") == str(tmp_path)
    with shared_folder(str(tmp_path)) as folder:
        assert folder == str(tmp_path)


def test_other_machines_learn_which_root_they_work_for(s3: S3Server, tmp_path: Path) -> None:
    """Names in other systems, for example Kafka's transactional ids, begin with it: two roots must
    not share them."""
    root = Root.open(str(tmp_path / "driver"), "p")
    root.close()
    identity = identity_of(str(root.path))
    assert identity.startswith("p-")
    unpack(pack(root.path), tmp_path / "unpacked")
    assert identity_of(str(tmp_path / "unpacked")) == identity
    space = s3.space()
    share(space, root.path)
    assert identity_of(fetched(space.root, str(tmp_path / "w"))) == identity
    assert identity_of(str(tmp_path / "nowhere")) == ""
