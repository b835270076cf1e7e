from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.launch.launchers.spark.class_archive import archive_of, archive_settings

OPTIONS = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    archive_of(tmp_path / "jars").write_bytes(b"")
    return tmp_path / "jars"


def test_both_ends_use_the_archive_beside_the_jars_and_keep_their_options(jars: Path) -> None:
    conf = archive_settings(jars, dict.fromkeys(OPTIONS, "-XX:+UseSerialGC"))
    for name in OPTIONS:
        assert conf[name].startswith(f"-XX:+UseSerialGC -XX:SharedArchiveFile={archive_of(jars)} ")
    assert (
        conf["spark.driver.extraClassPath"] == conf["spark.executor.extraClassPath"] == f"{jars}/*"
    )


def test_only_the_driver_makes_an_archive(jars: Path) -> None:
    conf = archive_settings(jars, {}, make=jars / "made.jsa")
    assert f"-XX:ArchiveClassesAtExit={jars}/made.jsa" in conf[OPTIONS[0]]
    assert OPTIONS[1] not in conf


def test_nothing_changes_without_an_archive_or_where_it_cannot_fit(
    jars: Path, tmp_path: Path
) -> None:
    assert archive_settings(jars, {"spark.driver.extraClassPath": "/mine/*"}) == {}
    spaced = tmp_path / "my jars"
    archive_of(spaced).write_bytes(b"")
    assert archive_settings(spaced / "jars", {}) == {}
    archive_of(jars).unlink()
    assert archive_settings(jars, {}) == {}
