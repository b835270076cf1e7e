"""Workers as plain processes of this machine: for laptops and tests, without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millwheel.adapters.processes.child import Living, fresh_scratch, stop_all
from millwheel.launch.launchers.base import WorkerExit, WorkerTemplate
from millwheel.launch.launchers.warm_children import ChildSpec


class ProcessLauncher:
    """The `processes` launcher: one child process per slot."""

    most: int | None = None

    def __init__(self, template: WorkerTemplate, start: Callable[[ChildSpec], Living]) -> None:
        self._template = template
        self._start = start
        self._children: dict[int, Living] = {}

    def start(self, slot: int) -> None:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        scratch = fresh_scratch(self._template.scratch, slot)
        log = Path(self._template.logs) / f"worker-{slot}"
        arguments = self._template.arguments(slot, scratch)
        self._children[slot] = self._start(
            ChildSpec(self._template.module, arguments, log, scratch)
        )

    def exits(self) -> list[WorkerExit]:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        ended = [(slot, child, child.poll()) for slot, child in self._children.items()]
        exits = []
        for slot, child, code in ended:
            if code is not None:
                del self._children[slot]
                exits.append(
                    WorkerExit(slot, code, child.lived_s(), child.last_words(), child.remains())
                )
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

    def lacks(self) -> str:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        return ""

    def stop(self, grace_s: float) -> None:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        stop_all(list(self._children.values()), grace_s)
        self._children.clear()
