from __future__ import annotations

import subprocess
import sys

import polars
import pytest

from millwheel.core.lazy_polars import dtype, pl


def test_the_names_are_those_of_polars_itself() -> None:
    assert pl.DataFrame is polars.DataFrame
    assert pl.exceptions is polars.exceptions
    with pytest.raises(AttributeError):
        _ = pl.no_such_name  # type: ignore[attr-defined]


def test_a_process_that_only_imports_the_plans_has_not_loaded_polars() -> None:
    """Polars begins threads, and a child that was forked would be without them."""
    code = "import millwheel.core.columns.plan, sys; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_declared_type_has_a_column_type() -> None:
    assert [dtype(kind) for kind in ("int", "float", "str", "bool")] == [
        polars.Int64,
        polars.Float64,
        polars.String,
        polars.Boolean,
    ]
