"""Workers as plain processes of this machine: for laptops and tests, without a JVM."""

from __future__ import annotations

import sys
from pathlib import Path

from millwheel.launch.launchers.base import WorkerExit, WorkerTemplate
from millwheel.launch.launchers.warm_children import Birth, WarmParentProcess
from millwheel.processes.child import Child, Living, fresh_scratch, stop_all
from millwheel.processes.libraries import worker_environment


class ProcessLauncher:
    """The `processes` launcher: one child process per slot, forked by a warm parent where the system lets processes
    fork (Linux)."""

    def __init__(self, template: WorkerTemplate) -> None:
        self._template = template
        self._children: dict[int, Living] = {}
        self._environment = worker_environment()
        self._warm: WarmParentProcess | None = self._parent()

    def start(self, slot: int) -> None:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        scratch = fresh_scratch(self._template.scratch, slot)
        log = Path(self._template.logs) / f"worker-{slot}"
        birth = Birth(self._template.module, self._template.arguments(slot, scratch), log, scratch, self._environment)
        if self._warm is not None and self._warm.gone:
            self._warm.close()
            self._warm = self._parent()
        if self._warm is not None:
            self._children[slot] = self._warm.start(birth)
        else:
            self._children[slot] = Child(birth.command, log, self._environment, scratch)

    def exits(self) -> list[WorkerExit]:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        ended = [(slot, child, child.poll()) for slot, child in self._children.items()]
        exits = []
        for slot, child, code in ended:
            if code is not None:
                del self._children[slot]
                exits.append(WorkerExit(slot, code, child.lived_s(), child.last_words()))
        return exits

    def pids(self) -> dict[int, int]:
        """The process id of each slot's living worker."""
        return {slot: child.pid for slot, child in self._children.items() if child.pid}

    def kill(self, slot: int, pid: int) -> bool:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        child = self._children.get(slot)
        if child is None or child.pid != pid:
            return False
        child.kill()
        return True

    def stop(self, grace_s: float) -> None:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        stop_all(list(self._children.values()), grace_s)
        self._children.clear()
        if self._warm is not None:
            self._warm.close()

    def _parent(self) -> WarmParentProcess | None:
        if not sys.platform.startswith("linux"):
            return None
        return WarmParentProcess(Path(self._template.logs) / "warm", self._environment)
