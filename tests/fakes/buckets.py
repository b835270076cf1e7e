"""What all servers of object stores have in common for tests: one bucket, roots in it, and ways to
fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from millwheel.adapters.spaces.bucket import BucketSpace
from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_client import CallLimits
from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.adapters.spaces.root_address import parse_root

BUCKET = "pipelines"
BUCKETS = ("s3", "gs", pytest.param("az", marks=pytest.mark.slow))
"""The fixtures with servers, as parameters of a contract."""
QUICK = CallLimits(connect_s=2.0, request_s=10.0, retry_s=3.0, retries=2)


@dataclass
class Fault:
    """What happens to the next ``times`` requests of ``method`` whose path contains ``part``.

    ``what``: "lose_answer" (it is done, the connection breaks), "refuse" (503, not done), "deny"
    (403), "vanish" (not done, the connection breaks), "ignore_if_none_match", "ignore_if_match"
    (done without that condition).
    """

    method: str
    part: str
    what: str
    times: int = 1


class BucketServer:
    """A server with one bucket, from the caller's side."""

    scheme: str

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach it."""
        raise AssertionError

    @property
    def config(self) -> dict[str, Any]:
        """The same as the option ``config`` of a source or a sink."""
        raise AssertionError

    def fail(self, *faults: Fault) -> None:
        """From here on these happen, and no others."""
        assert not faults, "this server cannot fail on demand"

    def root(self) -> str:
        """A new prefix, as the address of a root."""
        return f"{self.scheme}://{BUCKET}/{uuid4().hex}"

    def space(self, root: str = "", limits: CallLimits = QUICK) -> BucketSpace:
        """A client below ``root``, or below a new prefix."""
        return BucketSpace(parse_root(root or self.root()), limits)

    def store(self) -> ObjectStore:
        """A client for data."""
        return ObjectStore(ObjectAddress(self.scheme, BUCKET, ""), self.config)

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Has the environment in which this process and its children find the server."""
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
