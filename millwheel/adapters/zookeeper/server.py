"""A real ZooKeeper server for one machine, started from the jars that ship inside the pyspark
package.

It is the default when no ``--zookeeper`` is given: loopback only, its data under the root. The
process that starts it supervises it: ``alive`` and ``restart``.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from millwheel.adapters.rights import lock_file
from millwheel.errors import SetupError

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Naming the few jars that it needs, rather than all of Spark's, halves the time the server takes to
# start.
_JARS = (
    "zookeeper-*",
    "slf4j-api-*",
    "log4j-*",
    "netty-[!t]*",
    "netty-transport-*",
    "metrics-core-*",
    "snappy-java-*",
    "commons-io-*",
    "commons-cli-*",
)
_JVM = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.preAllocSize=1024",  # kB; the default reserves 64 MB per log file
    "-Djute.maxbuffer=4194304",
    "-Dzookeeper.4lw.commands.whitelist=ruok,srvr",
)
_CONFIG = """\
dataDir={data}
clientPortAddress={host}
clientPort={port}
tickTime=250
minSessionTimeout=1000
maxSessionTimeout=30000
maxClientCnxns=0
admin.enableServer=false
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
_LOGGING = """\
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1} - %m%n
"""
_HOST = "127.0.0.1"
_START_ATTEMPTS = 3  # others may take the port that was found free
_POLL_S = 0.02  # between looks whether the server answers
_STOP_S = 5.0  # to end in order; then it is killed
_LOG_LIMIT_BYTES = 8_000_000  # a larger log is begun anew


class EmbeddedZooKeeper:
    """One ZooKeeper server below ``data_dir``.

    ``java`` is the command that runs Java 17 or newer (its path, perhaps behind a wrapper that ends
    it together with us) and ``env`` its environment, None for ours.

    ``host`` is the address that it serves on: the loopback, unless nobody else can reach the
    network.

    The port is chosen at the first start and kept in ``data_dir``, so that the server comes back at
    the same address; only a new start (not ``restart``) may choose another one if another program
    took it meanwhile.
    """

    def __init__(
        self,
        data_dir: str,
        java: Sequence[str],
        env: Mapping[str, str] | None = None,
        port: int = 0,
        ready_timeout_s: float = 30.0,
        host: str = _HOST,
    ) -> None:
        self._host = host
        self._dir = Path(data_dir).absolute()
        self._java = tuple(java)
        self._env = env
        self._requested_port = port
        self._ready_timeout_s = ready_timeout_s
        self._port = 0
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """``host:port``, once started."""
        return f"{self._host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The server's process, or None when it was never started."""
        return None if self._process is None else self._process.pid

    def alive(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it serves. Raises SetupError with the last lines of its log when it
        does not."""
        self._prepare()
        for attempt in range(_START_ATTEMPTS):
            self._port = self._choose_port()
            try:
                self._launch()
                break
            except _PortTaken:
                if self._requested_port or attempt + 1 == _START_ATTEMPTS:
                    self.stop()
                    raise SetupError(
                        f"ZooKeeper cannot listen on {self.address}: the port is in use. Stop what"
                        " uses it or choose another port."
                    ) from None
            except SetupError:
                self.stop()
                raise
        (self._dir / "port").write_text(f"{self._port}\n")

    def restart(self) -> None:
        """Start a server that has died again, at the same address and with its data. Waits until it
        serves."""
        if self.alive():
            return
        try:
            self._launch()
        except _PortTaken:
            raise SetupError(
                f"ZooKeeper cannot come back on {self.address}: another program took the port"
            ) from None

    def stop(self) -> None:
        """End the server; its data stays. Does nothing when it is not running."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _prepare(self) -> None:
        """Create the directory and take its lock: two servers on the same data destroy it."""
        try:
            (self._dir / "data").mkdir(parents=True, exist_ok=True)
            lock = lock_file(self._dir / "lock")
        except OSError as error:
            raise SetupError(
                f"ZooKeeper cannot use {self._dir}: {error}. Make it a writable directory."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise SetupError(
                f"Another run uses the ZooKeeper data in {self._dir}. Stop that run or choose"
                " another root."
            ) from None
        self._lock = lock

    def _choose_port(self) -> int:
        stored = self._dir / "port"
        port = self._requested_port or (int(stored.read_text() or 0) if stored.is_file() else 0)
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self._host, port))
            except OSError:
                if self._requested_port:
                    return port
                probe.bind((self._host, 0))
            return int(probe.getsockname()[1])

    def _launch(self) -> None:
        """Run the server and wait for its "imok"."""
        config = self._dir / "zoo.cfg"
        config.write_text(_CONFIG.format(data=self._dir / "data", host=self._host, port=self._port))
        logging = self._dir / "log4j2.properties"
        logging.write_text(_LOGGING)
        crash = f"-XX:ErrorFile={self._dir / 'crash.log'}"
        command = [
            *self._java,
            *_JVM,
            crash,
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            _classpath(),
            _MAIN,
            str(config),
        ]
        log_path = self._dir / "zookeeper.log"
        _limit(log_path)
        with log_path.open("ab") as log:
            start = log.tell()
            self._process = _run(command, self._env, log, self._lock)
        self._await_ready(log_path, start)

    def _await_ready(self, log_path: Path, log_start: int) -> None:
        deadline_s = time.monotonic() + self._ready_timeout_s
        while time.monotonic() < deadline_s and self.alive():
            if _answers(self._host, self._port):
                return
            time.sleep(_POLL_S)
        died = not self.alive()
        if self._process is not None and not died:
            self._process.kill()
            self._process.wait()
        output = log_path.read_bytes()[log_start:].decode(errors="replace")
        if died and "BindException" in output:
            raise _PortTaken
        what = (
            "ended while starting"
            if died
            else f"did not answer within {self._ready_timeout_s:.0f} s"
        )
        last = " / ".join(output.strip().splitlines()[-3:]) or "nothing"
        raise SetupError(f"The embedded ZooKeeper {what}; see {log_path}. Its last words: {last}")


class _PortTaken(Exception):
    """The server could not bind its port."""


def _classpath() -> str:
    """The jars of ZooKeeper inside pyspark (or SPARK_HOME); pyspark itself is not imported."""
    folders: list[Path] = []
    package = importlib.util.find_spec("pyspark")
    if package is not None and package.origin is not None:
        folders.append(Path(package.origin).parent / "jars")
    if os.environ.get("SPARK_HOME"):
        folders.append(Path(os.environ["SPARK_HOME"]) / "jars")
    for folder in folders:
        if any(folder.glob("zookeeper-*.jar")):
            return os.pathsep.join(
                str(jar) for pattern in _JARS for jar in sorted(folder.glob(f"{pattern}.jar"))
            )
    raise SetupError(
        "No ZooKeeper jars were found in the pyspark package or under SPARK_HOME. Install them with"
        " pip install 'millwheel-spark[spark]', or name a ZooKeeper of your own: --zookeeper"
        " host:port/chroot"
    )


def _run(
    command: Sequence[str], env: Mapping[str, str] | None, log: IO[bytes], lock: IO[str] | None
) -> subprocess.Popen[bytes]:
    # The child inherits the lock: it is free only when the child is gone as well, however we ended.
    descriptors = () if lock is None else (lock.fileno(),)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            pass_fds=descriptors,
            # Ctrl-C must reach the run first, which still needs ZooKeeper to stop cleanly
            start_new_session=True,
        )
    except OSError as error:
        raise SetupError(f"Cannot start Java for ZooKeeper ({command[0]}): {error}") from error


def _limit(log_path: Path) -> None:
    """Keep one older log, so that restarts over years do not fill the root."""
    if log_path.is_file() and log_path.stat().st_size > _LOG_LIMIT_BYTES:
        log_path.replace(log_path.with_suffix(".log.old"))


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0) as connection:
            connection.sendall(b"ruok")
            return connection.recv(16) == b"imok"
    except OSError:
        return False
