"""A real Spark standalone cluster on loopback, for as long as a test needs it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pyspark

from millwheel.launch.launchers.java import find_java, java_environment
from millwheel.launch.launchers.spark.settings import LIGHT_JVM
from tests.servers.programs import free_port

SPARK_HOME = Path(pyspark.__file__).parent
SUBMIT = Path(__file__).parents[2] / "deploy" / "standalone.sh"


def dependencies_only(folder: Path) -> None:
    """Links to all that is installed here, except for the package itself."""
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "millwheel" not in entry.name and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)


class StandaloneCluster:
    """One Spark master and some workers of one core each."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self.workers = workers
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            **java_environment(find_java()),
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": os.path.realpath(sys.executable),
            "PYSPARK_DRIVER_PYTHON": os.path.realpath(sys.executable),
            "PYTHONPATH": str(folder / "dependencies"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": LIGHT_JVM,
        }

    def __enter__(self) -> StandaloneCluster:
        self.folder.mkdir()
        dependencies_only(self.folder / "dependencies")
        master = "org.apache.spark.deploy.master.Master"
        self._start(master, "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self._await_port()
        for number in range(self.workers):
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            options += ["--work-dir", str(self.folder / f"work-{number}"), self.url]
            self._start("org.apache.spark.deploy.worker.Worker", *options)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(30)

    def submit(self, package: Path, arguments: list[str]) -> str:
        """What ``deploy/standalone.sh`` said about these arguments, run where no millwheel lies but
        in ``package``."""
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        settings = {
            "driver.host": "127.0.0.1",
            "ui.enabled": "false",
            "executorEnv.PYTHONPATH": self._environment["PYTHONPATH"],
        }
        (conf / "spark-defaults.conf").write_text(
            "".join(f"spark.{name} {value}\n" for name, value in settings.items())
        )
        given = {
            **self._environment,
            "SPARK_CONF_DIR": str(conf),
            "SPARK_SUBMIT": str(SPARK_HOME / "bin" / "spark-submit"),
            "MILLWHEEL_ZIP": str(package),
        }
        command = [str(SUBMIT), self.url, *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=given,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def _start(self, name: str, *options: str) -> None:
        log = (self.folder / f"{name.rpartition('.')[2]}-{len(self._processes)}.log").open("wb")
        command = [str(SPARK_HOME / "bin" / "spark-class"), name, *options]
        self._processes.append(
            subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.folder,
            )
        )
        log.close()

    def _await_port(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError(f"no Spark master at {self.url}")
