from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.launch.launchers.java import find_java
from tests.slow.runs import EXAMPLES, Run
from tests.slow.standalone import free_port

pytestmark = pytest.mark.slow

DEBIAN_JARS = Path("/usr/share/java")


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    """A ZooKeeper from Debian's package, on loopback; skipped where the package is not
    installed."""
    if not (DEBIAN_JARS / "zookeeper.jar").exists():
        pytest.skip("Debian's zookeeperd is not installed (apt-get install zookeeperd)")
    port = free_port()
    config = tmp_path / "zoo.cfg"
    lines = [
        "tickTime=500",
        f"dataDir={tmp_path / 'zk'}",
        "clientPortAddress=127.0.0.1",
        f"clientPort={port}",
    ]
    config.write_text(
        "\n".join([*lines, "admin.enableServer=false", "4lw.commands.whitelist=ruok"]) + "\n"
    )
    (tmp_path / "zk").mkdir()
    classpath = f"/etc/zookeeper/conf:{DEBIAN_JARS}/zookeeper.jar:{DEBIAN_JARS}/*"
    command = [
        find_java(),
        "-cp",
        classpath,
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(config),
    ]
    with (tmp_path / "zk.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        time.sleep(3)
        assert server.poll() is None, (tmp_path / "zk.log").read_text()
        yield f"127.0.0.1:{port}/some/chroot"
    finally:
        server.terminate()
        server.wait(20)


def test_a_run_is_coordinated_by_a_zookeeper_of_ones_own(tmp_path: Path, zookeeper: str) -> None:
    params = {"output": str(tmp_path / "out")}
    pipeline = EXAMPLES / "weblog" / "pipeline.yaml"
    run = Run(pipeline, tmp_path, params, more=("--zookeeper", zookeeper)).start().wait(120)
    assert run.code == 0, run.said
    assert run.summary["records_in"] == 10_000
    assert not (run.root / "zookeeper").exists()
