"""The share of a machine that a worker's libraries may use: memory and threads.

Fresh memory has its price: the system fills each page with zeros on first use, and a virtual
machine may have to request the page from its host. Returning columns of some megabytes after every
bundle would cost a worker more than processing them. Therefore a worker keeps used memory for a
while, and one allocator serves Python and Arrow.

A worker is a task of one core. With two threads for columns it takes two fifths more CPU time for
the same work, at the expense of its neighbours. Arrow's own allocator and OpenBLAS, which nothing
here uses, start threads as soon as they are loaded; without these threads, workers can be forked
(:mod:`millwheel.launch.launchers.warm_parent`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SETTINGS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "OPENBLAS_NUM_THREADS": "1",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
    "POLARS_MAX_THREADS": "1",
}
"""Variables that Arrow, glibc, NumPy, Polars and its allocator read when they are loaded."""


def no_idle_threads() -> None:
    """Keeps OpenBLAS from starting a thread for each core in this process, unless the environment
    sets a number. Each of them spins for a while before it sleeps: on 16 cores, seconds of CPU for
    a command that never uses them."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", SETTINGS["OPENBLAS_NUM_THREADS"])


def worker_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a worker: ``base`` (default: ours), whose own settings win."""
    return {**SETTINGS, **(os.environ if base is None else base)}
