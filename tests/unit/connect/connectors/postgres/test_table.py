from __future__ import annotations

import pytest

from millwheel.connect.connectors.postgres.table import (
    DatabaseTable,
    check_by,
    create_statement,
    quoted,
)
from millwheel.errors import SetupError


def test_names_are_quoted_part_by_part() -> None:
    assert quoted('billing.my "table"') == '"billing"."my ""table"""'


def test_a_table_is_created_with_the_key_that_identifies_its_rows() -> None:
    made = create_statement("ctr", {"ad": "bigint", "n": "float8"}, ["ad"])
    assert made == 'create table if not exists "ctr" ("ad" bigint, "n" float8, primary key ("ad"))'
    assert create_statement("t", {"n": "int"}, []) == 'create table if not exists "t" ("n" int)'


def test_the_key_may_have_its_columns_in_any_order() -> None:
    table = DatabaseTable("t", {}, (frozenset(["a"]), frozenset(["b", "c"])))
    check_by(table, ["c", "b"])
    with pytest.raises(SetupError, match="no unique index on \\(b\\)"):
        check_by(table, ["b"])
