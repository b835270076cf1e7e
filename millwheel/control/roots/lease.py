"""One driver at a time on a root in an object store, which has no file system lock.

The object ``driver.json`` names the driver. The driver replaces it every few seconds by
compare-and-set. Another driver that is to take the root watches the object: as long as it changes,
a driver is alive. If it stays unchanged for longer than a driver may be silent, the other driver
replaces it; the silent driver notices this at its next beat and ends. Clocks of different machines
are never compared.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millwheel.adapters.spaces.object_space import ObjectContent, ReplacingSpace
from millwheel.adapters.spaces.object_store import ObjectVersion
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import MillwheelError, SetupError

LEASE_FILE = "driver.json"


@dataclass(frozen=True, slots=True)
class LeasePace:
    """A beat every ``beat_s``; a lease that has not changed for ``silent_s`` is over."""

    beat_s: float = 5.0
    silent_s: float = 20.0
    look_s: float = 1.0


class _Holder(msgspec.Struct, frozen=True):
    """``life`` is new with each taking, ``beat`` with each replacement, so no two contents are the
    same. ``here`` identifies the boot and namespace in which ``pid`` is valid ("": unknown)."""

    who: str
    here: str
    pid: int
    life: str
    beat: int = 0
    released: bool = False


class DriverLease:
    """A lease that is held from :meth:`take` to :meth:`release`; a thread renews it."""

    def __init__(
        self, space: ReplacingSpace, holder: _Holder, version: ObjectVersion, pace: LeasePace
    ) -> None:
        self._space, self._holder, self._version, self._pace = space, holder, version, pace
        self._key = f"{space.root}/{LEASE_FILE}"
        self._lost = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    @classmethod
    def take(
        cls, space: ReplacingSpace, announce: Callable[[str], None], pace: LeasePace | None = None
    ) -> DriverLease:
        """Become the driver: at once if the last driver released the lease, else once it has been
        silent for long enough.

        Raises SetupError when another driver is alive.
        """
        pace = pace or LeasePace()
        who = f"process {os.getpid()} on {socket.gethostname()}"
        holder = _Holder(who, _here(), os.getpid(), secrets.token_hex(8))
        key, data = f"{space.root}/{LEASE_FILE}", msgspec.json.encode(holder)
        content = space.version(key)
        if content is not None and not _is_over(last := _decoded(content, key)):
            announce(
                f"The last driver of {space.root} ({last.who}) did not sign off: waiting"
                f" {pace.silent_s:.0f} s for a sign of life"
            )
            _watch(space, key, content, pace)
        is_ours = (
            space.create(key, data)
            if content is None
            else space.replace(key, data, content.version) is not None
        )
        now = space.version(key)
        if not is_ours or now is None or now.data != data:
            raise _driven(space, now, key)
        return cls(space, holder, now.version, pace)

    def check(self) -> None:
        """Raise SetupError when another driver has taken the root."""
        if self._lost:
            raise SetupError(self._lost)

    def release(self) -> None:
        """Release the root at once. If that fails, other drivers wait until the lease expires."""
        self._ended.set()
        self._thread.join()
        if not self._lost:
            with suppress(MillwheelError):
                self._beat(released=True)

    def _run(self) -> None:
        last_beat_s = time.monotonic()
        while not self._lost and not self._ended.wait(self._pace.beat_s):
            try:
                self._beat()
                last_beat_s = time.monotonic()
            except MillwheelError as error:
                if time.monotonic() - last_beat_s > self._pace.silent_s:
                    self._lost = f"The root {self._space.root} could not be held: {error}"

    def _beat(self, released: bool = False) -> None:
        holder = msgspec.structs.replace(
            self._holder, beat=self._holder.beat + 1, released=released
        )
        version = self._space.replace(self._key, msgspec.json.encode(holder), self._version)
        if version is None:
            who = _driven(self._space, self._space.version(self._key), self._key)
            self._lost = (
                f"{who} It took the root while this driver was silent, so this run ends here."
            )
        else:
            self._holder, self._version = holder, version


def _is_over(holder: _Holder) -> bool:
    """Whether the driver has released the lease, or was a process of this machine that no longer
    exists."""
    if holder.released or not holder.here or holder.here != _here():
        return holder.released
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _here() -> str:
    """This boot of this machine, and the namespace of its process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _watch(space: ReplacingSpace, key: str, content: ObjectContent, pace: LeasePace) -> None:
    """Return once the version has not changed for long enough. Raises SetupError when it
    changes."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < pace.silent_s:
        time.sleep(pace.look_s)
        now = space.version(key)
        if now is None or now.version != content.version:
            raise _driven(space, now, key)


def _driven(space: ReplacingSpace, now: ObjectContent | None, key: str) -> SetupError:
    who = _decoded(now, key).who if now is not None else "unknown"
    return SetupError(
        f"A run on the root {space.root} is going on already ({who}). Wait for it, stop it, or give"
        " another --root."
    )


def _decoded(version: ObjectContent, key: str) -> _Holder:
    try:
        return msgspec.json.decode(version.data, type=_Holder)
    except DAMAGE as error:
        raise SetupError(
            f"{key} is damaged ({error}): delete it when you are sure that no run is going on"
        ) from error
