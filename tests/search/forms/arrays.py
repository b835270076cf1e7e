"""Functions of arrays that drawn expressions call. Some records they refuse."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

HEAD = "functions:\n" + "".join(
    f'  {name}: {{callable: "tests.search.forms.arrays:{name}", vectorized: true, returns: str}}\n'
    for name in ("marked", "first_of")
)
INSTEAD = {
    "upper(": "marked(",
    "regexp_extract(": "first_of(",
    "concat(": "first_of(",
    "substr(": "first_of(",
}
"""Functions of the language, and what is called in their place."""


def marked(texts: pa.Array) -> pa.Array:
    """The texts with a mark."""
    if pc.any(pc.equal(texts, "b")).as_py():
        raise ValueError("b cannot be marked")
    return pc.binary_join_element_wise(texts, "!", "")


def first_of(texts: pa.Array, patterns: pa.Array) -> pa.Array:
    """The first letter, null for none; the pattern is one of all records."""
    assert len(set(patterns.to_pylist())) == 1
    if pc.any(pc.equal(texts, "a!")).as_py():
        raise ValueError("a! has no first letter")
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None), pc.utf8_slice_codeunits(texts, 0, 1))
