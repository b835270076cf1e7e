"""Who takes part: what each system is started with, for one run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.contest import Run
from bench.environments import Environment, python_of
from bench.paths import HOUSE, PEERS, PIPELINES, PLUGINS

BYTEWAX = Environment("bytewax", ("bytewax==0.21.1", "orjson"))
SPARK = Environment("spark", ("pyspark==4.3.0", "pandas", "pyarrow", "protobuf", "grpcio"))
FLINK = Environment("flink", ("apache-flink==2.3.0", "orjson", "setuptools<81"), before=13)
SNAPSHOT_S = 5
"""How often peers make their state durable in parts A and B; ours does it before every result."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made: where its input is, in which form, where it may work, and how long."""

    folder: Path
    input: Path | None
    form: str
    timeout_s: float
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def run(self, command: list[str], env: dict[str, str] | None = None) -> Run:
        """This job with a command; its places are in the environment of the command, too."""
        indexes = {
            "BENCH_INPUT": str(self.input),
            "BENCH_OUTPUT": str(self.output),
            "BENCH_FORM": self.form,
        }
        return Run(
            command,
            self.folder,
            self.input,
            self.output,
            self.timeout_s,
            {**indexes, **(env or {})},
        )


@dataclass(frozen=True, slots=True)
class Contestant:
    """A system under its name in the tables. ``forms`` of input it takes; ``limit``: not a peer,
    but a bound.

    ``ended``: it does not close windows at the end of its input, so it gets one more record, hours
    later.
    """

    name: str
    start: Callable[[Job], Run]
    forms: tuple[str, ...] = ("jsonl",)
    limit: bool = False
    ended: bool = False


def ours(
    pipeline: str,
    workers: int = 2,
    params: Mapping[str, str] | None = None,
    more: Sequence[str] = (),
) -> Callable[[Job], Run]:
    """A pipeline of ``bench/pipelines`` on worker processes, exactly-once unless ``params`` say
    otherwise. ``more``: further arguments of the command."""

    def start(job: Job) -> Run:
        values = {"output": str(job.output), **(params or {}), **job.settings}
        if job.input is not None:
            values |= {"input": str(job.input), "form": job.form}
        command = [sys.executable, "-m", "millwheel", "run", str(PIPELINES / f"{pipeline}.yaml")]
        command += [
            "--launcher",
            "processes",
            "--workers",
            str(workers),
            "--root",
            str(job.folder / "root"),
        ]
        command += ["--summary", str(job.folder / "summary.json"), *more]
        for name, value in values.items():
            command += ["--set", f"{name}={value}"]
        path = os.pathsep.join([str(HOUSE), str(PLUGINS)])
        return job.run(command, {"PYTHONPATH": path, "BENCH_RATE": values.get("rate", "")})

    return start


def bytewax(program: str, processes: int, snapshot_s: float = SNAPSHOT_S) -> Callable[[Job], Run]:
    """A program of ``bench/peers`` on bytewax."""

    def start(job: Job) -> Run:
        command = [
            python_of(BYTEWAX),
            str(PEERS / "bytewax_run.py"),
            str(PEERS / program),
            str(processes),
        ]
        return job.run(
            [*command, str(snapshot_s)], {"BENCH_PROCESSES": str(processes), **_settings(job)}
        )

    return start


def local(program: str, *arguments: str, python: Environment | None = None) -> Callable[[Job], Run]:
    """A plain program of ``bench/peers``, in our environment or in that of a peer."""

    def start(job: Job) -> Run:
        interpreter = python_of(python) if python is not None else sys.executable
        env = {
            "PYTHONPATH": "",
            "PYSPARK_PYTHON": interpreter,
            "PYSPARK_DRIVER_PYTHON": interpreter,
        }
        # its thread mode embeds an interpreter that does not know its environment
        if python is FLINK:
            env["PYTHONPATH"] = next(
                str(path) for path in python.folder.glob("lib/python3.*/site-packages")
            )
        return job.run([interpreter, str(PEERS / program), *arguments], {**env, **_settings(job)})

    return start


def _settings(job: Job) -> dict[str, str]:
    return {f"BENCH_{name.upper()}": value for name, value in job.settings.items()}
