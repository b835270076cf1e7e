"""A real Kafka broker (KRaft, one node): its jars come from Maven's packages, once, into a cache of
this user.

Needs Java 17 and mvn. Where they are missing the tests are skipped, unless MILLWHEEL_REQUIRES names
``kafka``.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers.programs import ServerProcess, filled, free_port, need

VERSION = "4.2.0"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>broker</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
_START_S = 90.0
USER, PASSWORD = "alice", "w0rd-of-alice"


def need_kafka() -> None:
    """Skip the test where no broker can run, or fail it where one must."""
    need("kafka", "a Kafka broker", "java", "mvn")


def jars() -> Path:
    """The folder with the broker's jars."""
    return filled(f"kafka-{VERSION}", _fetch) / "jars"


def _fetch(folder: Path) -> None:
    (folder / "pom.xml").write_text(_POM)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies"]
    subprocess.run(
        [*command, f"-DoutputDirectory={folder}/jars"], cwd=folder, check=True, timeout=600
    )


class Broker(ServerProcess):
    """One broker on free ports, which keeps its data when it is killed and started again.
    ``guarded`` is the address that asks for USER and PASSWORD."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jars = jars()
        self._admin: AdminClient | None = None
        port, controller, guarded = (free_port() for _ in range(3))
        self.address = f"127.0.0.1:{port}"
        self.guarded = f"127.0.0.1:{guarded}"
        (folder / "server.properties").write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL://127.0.0.1:{guarded}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{guarded}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \\
  required \\
  user_{USER}="{PASSWORD}";
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
        )
        self._java(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            "kmillwheelTESTSxxxxxxA",
            "-c",
            "server.properties",
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = (self._folder / "log.txt").open("ab")
        command = [
            "java",
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{self._jars}/*",
            "kafka.Kafka",
            "server.properties",
        ]
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        log.close()
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            try:
                self.admin().list_topics(timeout=2)
            except KafkaException:
                continue
            return
        said = (self._folder / "log.txt").read_text(errors="replace")[-2000:]
        raise AssertionError(f"the broker did not start: {said}")

    def admin(self) -> AdminClient:
        """An administrator's client."""
        if self._admin is None:  # it must live for as long as its futures do
            self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        return self._admin

    def make_topic(self, name: str, partitions: int = 1, /, **config: str) -> str:
        """A new topic; its name again."""
        self.admin().create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
        return name

    def _java(self, *words: str) -> None:
        command = ["java", "-Xmx128m", "-cp", f"{self._jars}/*", *words]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
