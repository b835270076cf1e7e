"""The table of named queries that changed while a pipeline ran."""

from __future__ import annotations

import pytest

from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.errors import CorruptionError

SHARE = QuerySpec("share", "site / views.n", 60_000_000, ("site", "ad"), {"views": ("ad",)})


def test_a_query_is_the_same_after_it_was_stored() -> None:
    changes = QueryChanges().changed([QueryRow.of(SHARE)], "a")
    read = QueryChanges.decode(changes.encode())
    assert read == changes
    assert [row.spec for row in read.rows] == [SHARE]


def test_of_each_name_the_last_change_counts() -> None:
    changes = (
        QueryChanges()
        .changed([QueryRow("a", "x.n"), QueryRow("b", "y.n")], "1")
        .changed([QueryRow("a")], "2")
    )
    assert changes.number == 2
    assert {row.name: row.formula for row in changes.rows} == {"a": "", "b": "y.n"}


@pytest.mark.parametrize("data", [b"", b"torn", b"[]", b'{"number": "x"}'])
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="no table of named queries"):
        QueryChanges.decode(data)
