"""``millwheel explain``: draws a pipeline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from millwheel.adapters.rights import as_the_user_wants
from millwheel.errors import SetupError
from millwheel.language.spec import load_pipeline, resolve_params
from millwheel.language.spec.parameters import stand_ins
from millwheel.language.spec.pipelines import read_document
from millwheel.tools.cli.look.status import write_json
from millwheel.tools.explain.mermaid import mermaid_of
from millwheel.tools.explain.picture import picture_of
from millwheel.tools.explain.svg import svg_of
from millwheel.tools.explain.tree import tree_of


def explain(
    pipeline: str,
    params: Mapping[str, str],
    svg: str,
    console: Console,
    mermaid: bool = False,
    as_json: bool = False,
) -> None:
    """Print the tree, or the same as ``mermaid`` text or JSON, and write the SVG if a file is
    named. Parameters of sources and sinks without a value are shown as written."""
    unset = stand_ins(read_document(pipeline).top, lambda name: f"${{{name}}}")
    values = resolve_params(pipeline, params, os.environ, os.getcwd())
    picture = picture_of(load_pipeline(pipeline, {**unset, **values}))
    if svg:
        try:
            with as_the_user_wants():
                Path(svg).write_text(svg_of(picture), encoding="utf-8")
        except OSError as error:
            raise SetupError(
                f"{svg} cannot be written: {error.strerror}; name a file in a folder that exists"
            ) from error
    if as_json:
        return write_json(picture)
    if mermaid:
        return print(mermaid_of(picture), end="")
    return console.print(tree_of(picture))
