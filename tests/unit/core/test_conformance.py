"""Runs tests/transcripts/conformance: what the Dataflow model says of windows and triggers, told in
Beam's manner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.transcripts.adapter import run

FOLDER = Path(__file__).parents[2] / "transcripts" / "conformance"
_CASES = [
    pytest.param(document, id=f"{path.stem}-{document['name'].replace(' ', '_')}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for document in YAML(typ="safe").load_all(path.read_text())
    if document is not None
]


@pytest.mark.parametrize("document", _CASES)
def test_transcript(document: Any) -> None:
    if "error" not in document:
        run(document)
        return
    with pytest.raises(AssertionError, match=document["error"]):
        run(document)


def test_the_transcripts_are_found() -> None:
    assert len(_CASES) > 60
