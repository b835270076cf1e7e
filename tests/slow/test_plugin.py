"""The example of a third party's package, in a run of the real command."""

from __future__ import annotations

import configparser
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.slow.runs import EXAMPLES, Run

pytestmark = pytest.mark.slow
PLUGIN = EXAMPLES / "plugin"


def installed(folder: Path) -> Path:
    """A folder in which the package's entry points are found, as after an installation."""
    sections = re.findall(
        r'entry-points\."(.*)"\]\n(.*)\n', (PLUGIN / "pyproject.toml").read_text()
    )
    points = configparser.ConfigParser()
    for group, line in sections:
        name, _, value = line.partition(" = ")
        points[group] = {name: value.strip('"')}
    info = folder / "millwheel_ledger-0.1.0.dist-info"
    info.mkdir()
    with (info / "entry_points.txt").open("w") as file:
        points.write(file)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: millwheel-ledger\nVersion: 0.1.0\n"
    )
    return folder


def test_a_package_of_a_third_party_reads_and_writes(tmp_path: Path) -> None:
    ledger, sums = tmp_path / "in.db", tmp_path / "out.db"
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute(
            "create table entries (id integer primary key, account text, amount integer)"
        )
        rows = [(number, f"a{number % 3}", number) for number in range(1, 301)]
        connection.executemany("insert into entries values (?, ?, ?)", rows)
    site = tmp_path / "site"
    site.mkdir()
    path = (str(installed(site)), str(PLUGIN / "src"))
    run = (
        Run(
            PLUGIN / "pipeline.yaml",
            tmp_path,
            {"input": str(ledger), "output": str(sums)},
            path=path,
        )
        .start()
        .wait()
    )
    assert run.code == 0, run.said
    with closing(sqlite3.connect(sums)) as connection:
        found = connection.execute(
            "select account, sum(amount) from entries group by account"
        ).fetchall()
    expected = {
        f"a{n}": sum(number for number in range(1, 301) if number % 3 == n) for n in range(3)
    }
    assert dict(found) == expected
