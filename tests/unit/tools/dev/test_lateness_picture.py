"""The picture has a bar for each delay, and says which is in use and which is suggested."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from typer.testing import CliRunner

from millwheel.tools.cli.app import app

PIPELINE = """
pipeline: p
streams:
  hits:
    source: {files: {path: "${input}", format: jsonl}}
    timestamp: {field: t, unit: s}
    watermark: {max_delay: 2s}
computations:
  n: {input: {hits: {key: k}}, window: {tumbling: 1m}, aggregate: {n: count}, output: counts}
sinks: {counts: {stdout: {}}}
"""


def test_it_is_written_when_asked_and_dev_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    times = [100, 101, 96, 102, 99, 103]
    (tmp_path / "in.jsonl").write_text("".join(f'{{"k": 1, "t": {t}}}\n' for t in times))
    words = [str(tmp_path / "p.yaml"), "--set", f"input={tmp_path}/in.jsonl"]
    assert CliRunner().invoke(app, ["lateness", *words]).exit_code == 0
    assert not list(tmp_path.glob("*.svg"))
    picture = tmp_path / "late.svg"
    done = CliRunner().invoke(app, ["lateness", *words, "--svg", str(picture)])
    assert done.exit_code == 0, done.output
    root = ElementTree.fromstring(picture.read_text())
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "hits: late records by max_delay, of 6"
    assert "33.333%  now" in texts
    assert "0.000%  suggested" in texts
    bars = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(bars) - 1 == (len(texts) - 1) / 2
    tried = " ".join(CliRunner().invoke(app, ["dev", *words, "--once"]).output.split())
    late = "a run finds 33.333% of these records later than max_delay 2s, and 0.000% later than 5s"
    assert f"hits: {late}: see `millwheel lateness`" in tried
