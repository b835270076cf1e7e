"""The ZooKeeper of a run that was given none: an embedded server that ends together with the run."""

from __future__ import annotations

from millwheel.adapters.zookeeper_server import EmbeddedZooKeeper
from millwheel.launch.address import LOOPBACK
from millwheel.launch.java import find_java
from millwheel.launch.lifeline import child_environment, mortal


def embedded_zookeeper(data_dir: str, port: int = 0, host: str = LOOPBACK) -> EmbeddedZooKeeper:
    """A server below ``data_dir``, not started yet. Start it from a thread that lives as long as the run.

    Raises SetupError when there is no Java.
    """
    return EmbeddedZooKeeper(data_dir, mortal([find_java()]), child_environment(), port, host=host)
