"""A real Spark standalone cluster on loopback, for as long as a test needs it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from millwheel.launch.java import find_java, java_environment

SPARK_HOME = Path(pyspark.__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._environment.pop("PYTHONPATH", None)

    def __enter__(self) -> StandaloneCluster:
        self.folder.mkdir()
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

    def submit(self, package: Path, command: list[str]) -> str:
        """``spark-submit`` in client mode, from a folder where no millwheel lies; all that it said."""
        submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, "--py-files", str(package)]
        submit += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false", *command]
        done = subprocess.run(
            submit, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def _start(self, name: str, *options: str) -> None:
        log = (self.folder / f"{name.rpartition('.')[2]}-{len(self._processes)}.log").open("wb")
        command = [str(SPARK_HOME / "bin" / "spark-class"), name, *options]
        self._processes.append(
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self._environment, cwd=self.folder)
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
