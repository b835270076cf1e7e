from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.work import DictionarySpec
from millwheel.errors import PipelineError
from millwheel.language.spec import load_pipeline
from tests.unit.engine.workers.operators.combinations import written


def _load(folder: Path, text: str) -> object:
    spec = load_pipeline(written(folder, f"\ncomputations:\n  ids: {{{text}}}\n"))
    return spec.computations[0]


def test_a_dictionary_has_its_partitions_as_its_key(tmp_path: Path) -> None:
    found = load_pipeline(
        written(
            tmp_path,
            "\ncomputations:\n  ids: {input: hits, dictionary: {of: page, as: id}, output: out}\n",
        )
    ).computations[0]
    assert found.work == DictionarySpec("page", "id", 4096)
    assert found.inputs[0].key == KeySpec(KeyKind.FIELD, ("page",), partitions=4096)


def test_a_time_to_live_is_read(tmp_path: Path) -> None:
    found = load_pipeline(
        written(
            tmp_path,
            "\ncomputations:\n  ids: {input: hits, dictionary: {of: page, as: id, ttl: 1h}, output:"
            " out}\n",
        )
    ).computations[0]
    assert found.work == DictionarySpec("page", "id", 4096, ttl_us=3_600_000_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("input: hits, dictionary: {of: page}, output: out", "as"),
        (
            "input: hits, dictionary: {of: page, as: 'a b'}, output: out",
            "cannot be the name of a field",
        ),
        ("input: hits, dictionary: {of: page, as: id, partitions: 0}, output: out", "partitions"),
        (
            "input: hits, dictionary: {of: page, as: id, ttl: 1us}, output: out",
            "must lie between 8us",
        ),
        (
            "input: {hits: {key: page}}, dictionary: {of: page, as: id}, output: out",
            "leave key out",
        ),
        ("input: hits, dictionary: {of: page, as: id}", "nobody could see the numbers"),
        (
            "input: hits, dictionary: {of: page, as: id}, output: out, productions: weak",
            "another number",
        ),
        (
            "input: hits, dictionary: {of: page, as: id}, output: out, filter: size > 1",
            "one of dictionary and filter",
        ),
    ],
)
def test_what_a_dictionary_cannot_have_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        _load(tmp_path, text)
