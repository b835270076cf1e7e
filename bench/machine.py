"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_LIBRARIES = ("millwheel-spark", "polars", "pyarrow", "msgspec", "grpcio", "rocksdict", "duckdb")


def machine() -> dict[str, Any]:
    """Cores, memory, system, versions, and how busy it was (load of the last minute) when this was
    asked."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": ".".join(map(str, sys.version_info[:3])),
        "load": round(os.getloadavg()[0], 2),
        "versions": {name: found for name in _LIBRARIES if (found := _version(name))},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
