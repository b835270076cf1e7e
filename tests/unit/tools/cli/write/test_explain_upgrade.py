from __future__ import annotations

import io
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest
from rich.console import Console

from millwheel.errors import SetupError
from millwheel.tools.cli.write.explain_upgrade import explain_upgrade

PIPELINE = """
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: at, id: id}
computations:
  counts:
    input: {hits: {key: user}}
    window: {tumbling: SIZE}
    aggregate: {n: count}
    output: counts
sinks: {counts: {stdout: {}}}
"""


def write(folder: Path, name: str, size: str = "1m") -> str:
    (folder / name).write_text(dedent(PIPELINE).replace("SIZE", size))
    return str(folder / name)


def told(old: str, new: str) -> tuple[int, str]:
    out = io.StringIO()
    code = explain_upgrade(old, new, {}, Console(file=out, width=200))
    return code, out.getvalue()


def test_the_same_pipeline_goes_on_with_its_state(tmp_path: Path) -> None:
    code, text = told(write(tmp_path, "a.yaml"), write(tmp_path, "b.yaml"))
    assert code == 0
    assert "No change concerns state." in text
    assert "The same root can continue with it" in text


def test_a_change_is_told_with_its_node_and_verdict(tmp_path: Path) -> None:
    code, text = told(write(tmp_path, "a.yaml"), write(tmp_path, "b.yaml", "2m"))
    assert "counts" in text
    assert (code == 1) is ("cannot continue with this state" in text)
    assert "No change concerns state" not in text


def test_a_folder_that_is_neither_savepoint_nor_root_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"is neither a savepoint .* nor a root that was run"):
        told(str(tmp_path), write(tmp_path, "b.yaml"))


def test_changes_are_one_object_for_other_programs(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    old, new = write(tmp_path, "a.yaml"), write(tmp_path, "b.yaml", "2m")
    code = explain_upgrade(old, new, {}, Console(file=io.StringIO()), as_json=True)
    found = msgspec.json.decode(capfdbinary.readouterr().out)
    assert (code == 1) is (found["verdict"] == "refused")
    assert [change["node"] for change in found["changes"]] == ["counts"]
