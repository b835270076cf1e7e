"""A server that speaks Azure's blob storage (Azurite), from npm's registry, once, into a cache of
this user.

Needs node and npm. Where they are missing the tests are skipped, unless MILLWHEEL_REQUIRES names
``azurite``.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.fakes.buckets import BUCKET, BucketServer
from tests.servers.programs import filled, free_port, need

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's account and key are the same everywhere, and public."""
_START_S = 60.0


def need_azurite() -> None:
    """Skip the test where no server can run, or fail it where one must."""
    need("azurite", "Azurite", "node", "npm")


def program() -> Path:
    """The server's script."""
    folder = filled(f"azurite-{VERSION}", _install)
    return folder / "node_modules" / ".bin" / "azurite-blob"


def _install(folder: Path) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder)]
    subprocess.run(
        [*command, f"azurite@{VERSION}"], cwd=folder, check=True, timeout=600, capture_output=True
    )


class Azurite(BucketServer):
    """A process with one empty container."""

    scheme = "az"

    def __init__(self, folder: str) -> None:
        self._port = free_port()
        command = [
            str(program()),
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            str(self._port),
            "--location",
            folder,
        ]
        options = ["--silent", "--skipApiVersionCheck", "--inMemoryPersistence"]
        self._process = subprocess.Popen(
            [*command[:-2], *options], stdout=subprocess.DEVNULL, cwd=folder
        )
        self._wait()
        self._make_container()

    @property
    def config(self) -> dict[str, Any]:
        endpoint = f"http://127.0.0.1:{self._port}/{ACCOUNT}"
        return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint}

    @property
    def environment(self) -> dict[str, str]:
        return {f"AZURE_STORAGE_{name.upper()}": value for name, value in self.config.items()}

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1.0):
                return
            assert self._process.poll() is None, "Azurite ended"
            assert time.monotonic() < deadline, "Azurite did not start"
            time.sleep(0.05)

    def _make_container(self) -> None:
        import base64
        import hashlib
        import hmac
        import urllib.request
        from email.utils import formatdate

        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        listed = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        resource = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
        text = "PUT\n\n\n\n\napplication/x-www-form-urlencoded\n\n\n\n\n\n\n" + listed + resource
        signed = base64.b64encode(
            hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        ).decode()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signed}"
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        url = f"http://127.0.0.1:{self._port}/{ACCOUNT}/{BUCKET}?restype=container"
        request = urllib.request.Request(url, data=b"", headers=headers, method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 201

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


@contextmanager
def azurite() -> Iterator[Azurite]:
    """A server, and the environment that leads there."""
    with tempfile.TemporaryDirectory() as folder:
        server = Azurite(folder)
        try:
            with server.reachable():
                yield server
        finally:
            server.close()
