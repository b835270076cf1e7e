"""A root in an object store, as its driver holds it. Shared data lies there; data of this machine
alone (logs, the embedded ZooKeeper, local stores, dead letters) lies in a folder below
``.millwheel``."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.rights import close_to_others
from millwheel.adapters.spaces.durable import TEMPORARY
from millwheel.adapters.spaces.object_space import ReplacingSpace
from millwheel.adapters.spaces.probe import probe_objects
from millwheel.adapters.spaces.root_address import parse_root
from millwheel.control.roots.lease import LEASE_FILE, DriverLease, LeasePace
from millwheel.control.roots.root import (
    COMPLETED,
    IDENTITY,
    Identity,
    Root,
    root_path,
    take_lock,
    write_atomically,
)
from millwheel.control.roots.shipment import fetch, share
from millwheel.control.roots.shipping import HOME_FILE
from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.errors import SetupError


class BucketRoot(Root):
    """A root that is held from :meth:`open` to :meth:`close`: by a file lock on this machine, by a
    lease everywhere."""

    def __init__(
        self,
        address: str,
        identity: Identity,
        lock: IO[str],
        space: ReplacingSpace,
        lease: DriverLease,
    ) -> None:
        super().__init__(root_path(address), identity, lock)
        self.address = address
        self._space, self._lease = space, lease

    @classmethod
    def at(
        cls,
        address: str,
        pipeline: str,
        announce: Callable[[str], None],
        pace: LeasePace | None = None,
        group: str = "",
    ) -> BucketRoot:
        """Take a root as :meth:`Root.open` does; ``announce`` gets a sentence when that takes a
        while. Raises SetupError."""
        address = str(parse_root(address))
        space, path = cast(ReplacingSpace, open_space(address)), root_path(address)
        if warning := close_to_others(path, group):
            announce(f"Warning: {warning}. Files in a root are executed as you")
        lock = take_lock(path)
        try:
            lease = DriverLease.take(space, announce, pace)
            try:
                identity = _shared_identity(space, pipeline)
                _adopt(path, identity)
                fetch(space, path)
            except BaseException:
                lease.release()
                raise
        except BaseException:
            lock.close()
            raise
        return cls(address, identity, lock, space, lease)

    def close(self) -> None:
        self._lease.release()
        super().close()

    def check(self) -> None:
        self._lease.check()

    def probe(self, need_bytes: int) -> None:
        super().probe(need_bytes)
        probe_objects(self._space)

    def share(self) -> None:
        (self.path / "pipeline" / HOME_FILE).write_text(str(self.path), encoding="utf-8")
        share(self._space, self.path)

    @property
    def orders(self) -> str:
        return self.address

    def logs_of_workers(self, far: bool) -> str:
        return "" if far else super().logs_of_workers(far)

    def check_reach(self, spec: PipelineSpec, far: bool) -> None:
        for sink in spec.sinks if far else ():
            if sink.kind == "stdout":
                raise SetupError(
                    f"The sink of {sink.stream!r} prints, but what workers on other machines print"
                    f" does not come here with the root {self._space.root}: write it to files, or"
                    " use a root that is a folder"
                )
            if sink.stream == DEAD_LETTERS and sink.options.get("path") == str(
                self.path / DEAD_LETTERS
            ):
                raise SetupError(
                    f"The root {self._space.root} is not a folder in which workers on other"
                    " machines could keep dead letters: name a sink for them (sinks: {dead_letters:"
                    " {files: {path: ...}}})"
                )

    def used(self) -> bool:
        return any(
            self._space.claimed(f"{self._space.root}/journal/{name}") for name in self._journals()
        )

    def _journals(self) -> list[str]:
        return self._space.names(f"{self._space.root}/journal")

    def completed(self) -> Mapping[str, Any] | None:
        try:
            content = msgspec.json.decode(
                self._space.get(f"{self._space.root}/{COMPLETED}"), type=dict[str, Any]
            )
        except FileNotFoundError:
            return None
        except DAMAGE as error:
            raise SetupError(f"{self._space.root}/{COMPLETED} cannot be read: {error}") from error
        return content

    def complete(self, summary: Mapping[str, Any]) -> None:
        self._space.create(f"{self._space.root}/{COMPLETED}", msgspec.json.encode(summary))
        super().complete(summary)


def _shared_identity(space: ReplacingSpace, pipeline: str) -> Identity:
    """The identity stored in the root, created if there is none."""
    key = f"{space.root}/{IDENTITY}"
    if not space.exists(key):
        strange = [
            name
            for name in space.names(space.root)
            if name != LEASE_FILE and not name.startswith(TEMPORARY)
        ]
        if strange:
            raise SetupError(
                f"There are objects below {space.root} (for example {min(strange)}), and it is not"
                " a root of a pipeline. Give a prefix of its own with --root."
            )
        space.create(key, msgspec.json.encode(Identity(pipeline, secrets.token_hex(8))))
    try:
        identity = msgspec.json.decode(space.get(key), type=Identity)
    except DAMAGE as error:
        raise SetupError(
            f"{key} is damaged ({error}): the root cannot be trusted; use another one"
        ) from error
    identity.must_be(pipeline, space.root)
    return identity


def _adopt(path: Path, identity: Identity) -> None:
    """Bind this machine's folder to the root, unless the folder belongs to an earlier root at the
    same address."""
    target = path / IDENTITY
    if not target.exists():
        write_atomically(target, msgspec.json.encode(identity))
    elif target.read_bytes() != msgspec.json.encode(identity):
        raise SetupError(
            f"The folder {path} belongs to an earlier root at the same address: remove the folder"
            " (the logs and the embedded ZooKeeper of that root are in it), or give another --root"
        )
