"""The wheel beside the packages that it requires, and no others: what works, and which extra each
connector names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.slow.runs import REPO

pytestmark = pytest.mark.slow

STREAM = "p: {source: SOURCE, timestamp: ts}"
KAFKA = 'kafka: {brokers: "127.0.0.1:1", '
CASES = {
    "plain": ("{injection: {}}", "{stdout: {}}", ""),
    "kafka source": (f"{{{KAFKA}topics: [t]}}}}", "{stdout: {}}", "kafka"),
    "kafka sink": ("{injection: {}}", f"{{{KAFKA}topic: t}}}}", "kafka"),
    "avro": (
        "{injection: {}}",
        f"{{{KAFKA}topic: t, format: {{avro: {{schema: s.avsc}}}}}}}}",
        "avro",
    ),
    "postgres": ("{injection: {}}", '{postgres: {dsn: "postgres://h/d", table: t}}', "postgres"),
    "redis": ("{injection: {}}", '{redis: {url: "redis://h", kind: hash, key: "k:{a}"}}', "redis"),
    "delta": ("{injection: {}}", "{delta: {path: t}}", "delta"),
    "iceberg": (
        "{injection: {}}",
        '{iceberg: {table: a.t, catalog: {type: sql, uri: "sqlite:////x"}}}',
        "iceberg",
    ),
    "http": ("{http: {port: 8080}}", "{stdout: {}}", "http"),
    "objects in": ('{files: {path: "s3://bucket/p", format: jsonl}}', "{stdout: {}}", "s3"),
    "objects out": ("{injection: {}}", '{files: {path: "gs://bucket/p"}}', "s3"),
}
ASK = """
import contextlib, io, json, sys
import millwheel, millwheel.tools.cli
found = {}
for name in sys.argv[1:]:
    said = io.StringIO()
    sys.argv = ["millwheel", "validate", name]
    printed = contextlib.redirect_stderr(said), contextlib.redirect_stdout(said)
    with printed[0], printed[1], contextlib.suppress(SystemExit):
        millwheel.tools.cli.main()
    found[name] = said.getvalue()
print(json.dumps(found))
"""


def required(names: list[str], known: dict[str, str]) -> dict[str, str]:
    """What these packages require, and so on."""
    for name in names:
        needs = Requirement(name)
        if needs.marker is not None and not needs.marker.evaluate({"extra": ""}):
            continue
        if needs.name.lower() not in known:
            known[needs.name.lower()] = needs.name
            required(list(distribution(needs.name).requires or ()), known)
    return known


def clean(tmp_path: Path) -> str:
    """A path for Python with the wheel and what it requires."""
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(tmp_path / "dist"),
    ]
    subprocess.run(build, cwd=REPO, check=True, capture_output=True, timeout=120)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "wheel")
    metadata = next((tmp_path / "wheel").glob("*.dist-info")) / "METADATA"
    needs = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text(), re.MULTILINE)
    (tmp_path / "site").mkdir()
    for name in required(needs, {}).values():
        found = distribution(name)
        for top in {
            file.parts[0]
            for file in found.files or ()
            if file.parts[0] not in ("..", "__pycache__")
        }:
            link = tmp_path / "site" / top
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(top))))
    return os.pathsep.join((str(tmp_path / "wheel"), str(tmp_path / "site")))


def test_a_plain_install_works_and_each_connector_names_its_extra(tmp_path: Path) -> None:
    path = clean(tmp_path)
    for number, (source, sink, _) in enumerate(CASES.values()):
        text = f"pipeline: p\nstreams:\n  {STREAM.replace('SOURCE', source)}\ncomputations:\n"
        text += "  c: {input: {p: {key: a}}, steps: [{filter: a > 1}], output: out}\n"
        (tmp_path / f"{number}.yaml").write_text(f"{text}sinks: {{out: {sink}}}\n")
    (tmp_path / "s.avsc").write_text(
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    )
    ended = subprocess.run(
        [sys.executable, "-S", "-c", ASK, *(f"{number}.yaml" for number in range(len(CASES)))],
        cwd=tmp_path,
        env={"PYTHONPATH": path, "COLUMNS": "1000", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    for said, (name, (_, _, extra)) in zip(
        json.loads(ended.stdout).values(), CASES.items(), strict=True
    ):
        told = set(re.findall(r"millwheel-spark\[(\w+)\]", said))
        # Avro into Kafka lacks both, and may name either first.
        assert (
            told <= {extra, "kafka"} if extra == "avro" else told == ({extra} if extra else set())
        ), f"{name}: {said}"
        assert bool(told) == bool(extra), f"{name}: {said}"
        assert "Traceback" not in said, said
