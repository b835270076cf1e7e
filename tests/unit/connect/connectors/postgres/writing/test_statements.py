from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.connectors.postgres.writing.rows import TextRow
from millwheel.connect.connectors.postgres.writing.statements import waves


def row(index: int, identity: str, back: bool = False) -> TextRow:
    return TextRow(index, ("id",), (identity,), back, (identity,))


def test_rows_that_are_only_appended_are_one_group() -> None:
    assert [len(wave) for wave in waves([row(n, "a") for n in range(5)], None)] == [5]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_what_happens_to_one_identity_happens_in_its_order(steps: list[tuple[str, bool]]) -> None:
    rows = [row(index, identity, back) for index, (identity, back) in enumerate(steps)]
    found = list(waves(rows, [row.identity for row in rows]))
    for wave in found:
        assert len({each.identity for each in wave}) == len(wave)
        assert len({each.back for each in wave}) == 1
    for identity in "abc":
        indexes = [each.index for wave in found for each in wave if each.identity == (identity,)]
        assert indexes == [each.index for each in rows if each.identity == (identity,)]
