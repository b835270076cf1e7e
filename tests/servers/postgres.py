"""A real PostgreSQL server on loopback, of Debian's package: installed, or fetched once into a
cache of this user.

Where it cannot be had the tests are skipped, unless MILLWHEEL_REQUIRES names ``postgres``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers.programs import filled, free_port, lacking

USER, PASSWORD = "mill", "pass-of-mill"
_START_S = 60.0
_PACKAGES = (
    "postgresql-15",
    "libpq5",
    "libxml2",
    "libicu72",
    "libldap-2.5-0",
    "libsasl2-2",
    "libssl3",
    "zlib1g",
)


def need_postgres() -> None:
    """Skip the test where no server can run, or fail it where one must."""
    try:
        binaries()
    except (OSError, subprocess.SubprocessError) as ex:
        lacking(
            "postgres",
            f"there is no PostgreSQL server here, and Debian's package cannot be fetched: {ex}",
        )


@cache
def binaries() -> tuple[Path, Mapping[str, str]]:
    """The folder of the programs, and the environment that they need."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if installed:
        return installed[-1].parent, {}
    folder = filled("postgresql", _fetch)
    # Another user runs the server, and may not enter the home folder of this one.
    shared = Path(tempfile.gettempdir()) / f"millwheel-postgresql-{os.getuid()}"
    if not shared.exists():
        copy = tempfile.mkdtemp(prefix="millwheel-postgresql-")
        shutil.copytree(folder / "root", copy, dirs_exist_ok=True, symlinks=True)
        os.chmod(copy, 0o755)
        os.rename(copy, shared)
    (found,) = shared.glob("usr/lib/postgresql/*/bin")
    libraries = ":".join(map(str, shared.glob("usr/lib/*-linux-gnu")))
    return found, {"LD_LIBRARY_PATH": libraries}


def _fetch(folder: Path) -> None:
    for package in _PACKAGES:
        done = subprocess.run(
            ["apt-get", "download", package], cwd=folder, capture_output=True, timeout=300
        )
        if done.returncode != 0 and package == _PACKAGES[0]:
            raise OSError(done.stderr.decode(errors="replace").strip()[-300:])
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(archive), str(folder / "root")], check=True, timeout=120)


def _as_somebody_else(command: list[str]) -> list[str]:
    """The server refuses to run as root."""
    if os.getuid() != 0:
        return command
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]


class Server:
    """One server on a free port, which keeps its data when it is killed and started again."""

    def __init__(self) -> None:
        self._bin, self._environment = binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="millwheel-pg-", dir="/tmp"))
        self.port = free_port()
        self.dsn = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        (self._folder / "password").write_text(PASSWORD)
        if os.getuid() == 0:
            for path in (self._folder, self._folder / "password"):
                os.chown(path, 65534, 65534)
        self._run(
            "initdb",
            "-D",
            "data",
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            "--pwfile=password",
            "--no-sync",
            "-E",
            "UTF8",
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import psycopg

        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "32MB",
        }
        settings |= {"fsync": "off", "max_connections": "60", "timezone": "UTC"}
        command = [str(self._bin / "postgres"), "-D", "data", "-p", str(self.port)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with (self._folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                _as_somebody_else(command),
                cwd=self._folder,
                env=self._env(),
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            try:
                psycopg.connect(self.dsn, connect_timeout=2).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
                continue
            return
        said = (self._folder / "log.txt").read_text(errors="replace")[-2000:]
        raise AssertionError(f"the server did not start: {said}")

    def kill(self) -> None:
        """It ends at once and writes nothing more, as after a crash: the next start recovers from
        its log."""
        assert self._process is not None
        if self._connection is not None:
            self._connection.close()
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def end(self) -> None:
        """For good."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def sql(self, text: Any, *words: Any) -> list[tuple[Any, ...]]:
        """Run a statement; the rows that it returns."""
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.dsn, autocommit=True)
        cursor = self._connection.execute(text, words or None)
        return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *words: str) -> None:
        command = _as_somebody_else([str(self._bin / program), *words])
        done = subprocess.run(
            command, cwd=self._folder, env=self._env(), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _env(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **self._environment}
