"""Checks that Spark is installed, and that something listens at ``--spark-master``: a JVM would try
for minutes."""

from __future__ import annotations

import importlib.util
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from millwheel.adapters.processes.address import EMBEDDED
from millwheel.errors import SetupError

PATIENCE_S = 6.0
"""A master that has not answered by then counts as unreachable, for any cause."""

_STANDALONE = re.compile(r"spark://(.+)")
_KUBERNETES = re.compile(r"k8s://(?:https?://)?([^/,]+:\d+)/?")
_CONNECT = "sc://"
_REMOTE = "SPARK_REMOTE"
Connect = Callable[[str, int, float], object]


def check_installed() -> None:
    """Raise SetupError when Spark is not installed, before the search for Java and before any
    process starts."""
    if importlib.util.find_spec("pyspark") is None:
        raise SetupError(
            "Spark is not installed: pip install 'millwheel-spark[spark]', or leave out --launcher"
            " and --spark-master: plain processes of this machine need neither Spark nor Java"
        )


def check_master(url: str, patience_s: float = PATIENCE_S, connect: Connect | None = None) -> None:
    """Raise SetupError within seconds when no master of ``url`` can be reached. URLs without an
    address (``local``, ``yarn``) are left to Spark."""
    if url.startswith(_CONNECT):
        raise SetupError(
            f"--spark-master {url} is a server of Spark Connect, which runs queries and cannot hold"
            " workers. Name the master itself (spark://HOST:7077, yarn, k8s://…), or leave the"
            " option out: executors then run on this machine"
        )
    addresses = [_address(url, text) for text in _addresses(url)]
    if not addresses:
        return
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    # side by side: a name that is never resolved must not keep the others
    for host, port in addresses:
        work = (answers, connect or _connect, host, port, patience_s)
        threading.Thread(target=_try, args=work, daemon=True, name=f"spark-master {host}").start()
    until_s, problems = time.monotonic() + patience_s, []
    for _ in addresses:
        try:
            problem = answers.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty:
            problem = f"no answer within {patience_s:.0f} s"
        if not problem:
            return
        problems.append(problem)
    raise SetupError(
        f"No Spark master can be reached at {url}: {'; '.join(dict.fromkeys(problems))}. Check that"
        " it runs, and that --spark-master is the URL that it shows (spark://HOST:7077). Without"
        " the option executors run on this machine"
    )


def remote_note(url: str, environment: Mapping[str, str]) -> str:
    """A sentence for a program that works with a Spark Connect server, which a run without ``url``
    does not use."""
    if url or not environment.get(_REMOTE):
        return ""
    return (
        f"Note: {_REMOTE} names a server of Spark Connect, which cannot hold workers: this run"
        " starts a Spark of its own on this machine. Name a cluster with --spark-master"
    )


def check_machines(url: str, zookeeper: str) -> None:
    """Raise SetupError when workers will run on other machines and the run has no ZooKeeper that
    these machines reach."""
    if zookeeper not in ("", EMBEDDED) or not url or url.startswith("local"):
        return
    hosts = (
        [_address(url, text)[0] for text in _addresses(url)] if _STANDALONE.fullmatch(url) else []
    )
    if hosts and all(map(_is_here, hosts)):
        return
    raise SetupError(
        f"--spark-master {url} has workers on several machines, and they share a ZooKeeper: that of"
        " a driver serves its own machine only. Name one that all machines reach (--zookeeper"
        " HOST:PORT/CHROOT), with --listen auto and --security FOLDER (docs/security.md)"
    )


def _is_here(host: str) -> bool:
    """Whether a name or address belongs to this machine, so that no other machine can listen on
    it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _addresses(url: str) -> list[str]:
    if match := _STANDALONE.fullmatch(url):
        return match[1].split(",")
    return [match[1]] if (match := _KUBERNETES.fullmatch(url)) else []


def _address(url: str, text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 1 << 16):
        raise SetupError(
            f"--spark-master {url}: write it as spark://HOST:PORT, several as"
            " spark://HOST:PORT,HOST:PORT"
        )
    return host.strip("[]"), int(port)


def _try(
    answers: queue.SimpleQueue[str], connect: Connect, host: str, port: int, patience_s: float
) -> None:
    try:
        connect(host, port, patience_s)
    except OSError as error:
        answers.put(f"{host}:{port} says {error.strerror or error}")
    else:
        answers.put("")


def _connect(host: str, port: int, patience_s: float) -> None:
    with closing(socket.create_connection((host, port), patience_s)):
        pass
