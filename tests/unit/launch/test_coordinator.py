from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.errors import SetupError
from millwheel.launch.coordinator import LocalKeeper, ZooKeeperKeeper, coordinator_for
from millwheel.launch.settings import LauncherKind, RunSettings


def settings(launcher: LauncherKind = LauncherKind.PROCESSES, zookeeper: str = "") -> RunSettings:
    return RunSettings("p.yaml", launcher=launcher, zookeeper=zookeeper)


def chosen(settings: RunSettings, root: Path, monkeypatch: pytest.MonkeyPatch) -> type | None:
    monkeypatch.setattr("millwheel.launch.coordinator.embedded_zookeeper", lambda *_, **__: None)
    made = coordinator_for(settings, root, print)
    return None if made is None else type(made)


@pytest.mark.parametrize(
    ("launcher", "zookeeper", "kept", "want"),
    [
        (LauncherKind.PROCESSES, "", "", LocalKeeper),
        (LauncherKind.PROCESSES, "embedded", "", ZooKeeperKeeper),
        (LauncherKind.PROCESSES, "", "zookeeper", ZooKeeperKeeper),
        (LauncherKind.PROCESSES, "h:2181/x", "", None),
        (LauncherKind.SPARK, "", "", LocalKeeper),
        (LauncherKind.SPARK, "", "zookeeper", ZooKeeperKeeper),
        (LauncherKind.SPARK, "embedded", "", ZooKeeperKeeper),
        (LauncherKind.SPARK, "", "coordinator.db", LocalKeeper),
        (LauncherKind.SPARK, "h:2181/x", "zookeeper", None),
    ],
)
def test_a_root_stays_with_what_coordinated_it_first(
    launcher: LauncherKind,
    zookeeper: str,
    kept: str,
    want: type | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kept:
        (tmp_path / kept).touch()
    assert chosen(settings(launcher, zookeeper), tmp_path, monkeypatch) is want


def test_a_root_with_a_coordinator_of_its_own_cannot_change_to_zookeeper(tmp_path: Path) -> None:
    (tmp_path / "coordinator.db").touch()
    with pytest.raises(SetupError, match="cannot change to ZooKeeper"):
        coordinator_for(settings(zookeeper="embedded"), tmp_path, print)


def test_a_spark_that_others_made_gets_a_zookeeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = RunSettings(
        "p.yaml", launcher=LauncherKind.SPARK, spark_master="spark://127.0.0.1:7077"
    )
    assert chosen(given, tmp_path, monkeypatch) is ZooKeeperKeeper
    assert chosen(RunSettings("p.yaml", submitted=True), tmp_path, monkeypatch) is ZooKeeperKeeper
