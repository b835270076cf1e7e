"""A real schema registry: Apicurio Registry, in memory, which speaks Confluent's REST API. It comes
from Maven's packages, once, into a cache of this user.

Needs Java 17 and mvn. Where they are missing the tests are skipped, unless MILLWHEEL_REQUIRES names
``registry``.
"""

from __future__ import annotations

import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.servers.programs import ServerProcess, filled, free_port, need

VERSION = "2.6.13.Final"  # later ones need Java 21
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
_START_S = 90.0


def need_registry() -> None:
    """Skip the test where no registry can run, or fail it where one must."""
    need("registry", "a schema registry", "java", "mvn")


def program() -> Path:
    """The folder with its jars."""
    return filled(f"apicurio-{VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    command = ["mvn", "-q", "-B", _COPY, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={folder}"]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()


class RegistryServer(ServerProcess):
    """One registry on a free port, which forgets everything when it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        jar = program() / f"apicurio-registry-app-{VERSION}-runner.jar"
        settings = [f"-Dquarkus.http.port={self._port}", "-Dquarkus.http.host=127.0.0.1"]
        command = [
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *settings,
            "-jar",
            str(jar),
        ]
        with (self._folder / "registry.txt").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/subjects", timeout=2).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
                continue
            return
        told = (self._folder / "registry.txt").read_text(errors="replace")[-2000:]
        raise AssertionError(f"the registry did not start: {told}")
