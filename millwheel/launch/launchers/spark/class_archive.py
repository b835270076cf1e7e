"""An archive of Spark's classes beside its jars, which the JVMs of a run's own Spark map into
memory.

Without it each of them reads and parses ten thousand classes, a third of the CPU of its start. The
archive is made once for an installation (``python -m
millwheel.launch.launchers.spark.class_archive``, half a minute, 75 MB). A JVM that finds none, or
whose jars or Java are not those that it was made of, starts as usual.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from millwheel.adapters.processes.interpreter import begin_process
from millwheel.errors import SetupError

_ENDS = ("driver", "executor")
# one that does not fit is not an error
_USE = "-XX:SharedArchiveFile={} -Xlog:cds=off -Xlog:cds+dynamic=off"
_MAKE = "-XX:ArchiveClassesAtExit={} -Xlog:cds=off"
_MAKING_S = 300.0  # to write it, which takes a quarter of a minute on quiet cores


def archive_of(jars: Path) -> Path:
    """The archive of a folder of jars: whoever can write there could replace the jars as well."""
    return jars.with_name("millwheel-classes.jsa")


def archive_settings(
    jars: Path, conf: Mapping[str, str], make: Path | None = None
) -> dict[str, str]:
    """The settings of Spark with which its JVMs use the archive of ``jars``, or make one. There are
    none where it does not exist, where its path has no place in the options of a JVM, or where
    ``conf`` names another class path."""
    archive = make or archive_of(jars)
    if any(map(str.isspace, f"{jars}{archive}")) or not (make or os.access(archive, os.R_OK)):
        return {}
    # A JVM compares the paths, and each run has another home of Spark: so the jars come from where
    # they are installed.
    paths = {f"spark.{end}.extraClassPath": f"{jars}/*" for end in _ENDS}
    if conf.keys() & paths.keys():
        return {}
    ends, option = (_ENDS[:1], _MAKE) if make else (_ENDS, _USE)
    names = [f"spark.{end}.defaultJavaOptions" for end in ends]
    return paths | {name: f"{conf.get(name, '')} {option.format(archive)}" for name in names}


def make_archive() -> Path:
    """Make the archive of the installed Spark, by a Spark that runs one task. Raises SetupError."""
    from millwheel.launch.launchers.spark.context import connected, end_gateway, installed_jars
    from millwheel.launch.launchers.spark.settings import SparkSettings

    archive = archive_of(installed_jars())
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            tempfile.TemporaryDirectory(dir=archive.parent) as beside,
        ):
            staged = Path(beside) / archive.name
            context = connected(
                SparkSettings("", 1, "class archive", folder, f"{folder}/log", archive=staged),
                print,
            )
            context.parallelize([1], 1).map(str).collect()
            context.stop()
            end_gateway(context, _MAKING_S)
            staged.chmod(0o444)  # for all who may read the jars
            os.replace(staged, archive)
    except OSError as error:
        raise SetupError(
            f"the archive of Spark's classes, {archive}, cannot be made: {error}"
        ) from error
    return archive


if __name__ == "__main__":
    begin_process()
    make_archive()
