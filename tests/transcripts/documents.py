"""Transcripts that are YAML: the documents of a folder as cases of a test, and what did happen put
into their files."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML


def files(folder: Path) -> dict[Path, list[Any]]:
    """The documents of each file of a folder."""
    return {path: _documents(path) for path in sorted(folder.glob("*.yaml"))}


def _documents(path: Path) -> list[Any]:
    """Read by libyaml: each process of a run of the tests collects all of them."""
    return [each for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each is not None]


def cases(of: Mapping[Path, list[Any]]) -> list[Any]:
    """Parameters of a test, one for each document."""
    return [
        pytest.param(document, id=f"{path.stem}-{document['name'].replace(' ', '_')}")
        for path, documents in of.items()
        for document in documents
    ]


def rewrite(path: Path, documents: list[Any], width: int, change: Callable[[Any], None]) -> None:
    """Put what happens into a file, whose other lines and comments stay, and into its documents, so
    that the tests which follow run with them."""
    text = YAML()
    text.width = width
    text.indent(mapping=2, sequence=4, offset=2)
    text.explicit_start = True
    written = list(text.load_all(path.read_text()))
    for each in written:
        change(each)
    out = io.StringIO()
    text.dump_all(written, out)
    path.write_text(out.getvalue())
    for document, anew in zip(documents, _documents(path), strict=True):
        document.clear()
        document.update(anew)
