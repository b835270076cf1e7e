"""Keys, windows, triggers and aggregates in a few words."""

from __future__ import annotations

from pathlib import Path

from millwheel.explain.picture import Arrow, picture_of
from millwheel.spec import load_pipeline


def test_code_without_a_name_is_said_to_be_ones_own(tmp_path: Path) -> None:
    text = "from millwheel import *\np = Pipeline('p')\nhits = p.read('hits', InjectionSource(), timestamp='t')\n"
    text += "hits.key_by(lambda v: v['a']).map(lambda v: v, name='same')\n"
    (tmp_path / "own.py").write_text(text)
    picture = picture_of(load_pipeline(tmp_path / "own.py"))
    assert picture.box("same").lines == ("map (own code)",)
    assert picture.arrows == (Arrow("source.hits", "same", "hits", "by (own code)"),)
