from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.connectors.redis.sink import build_redis_sink
from millwheel.core.pipeline.keys import KeyKind
from millwheel.errors import PipelineError, SetupError
from millwheel.language.spec import load_pipeline

ROOT = Path(__file__).parents[5]
GOOD = {"url": "redis://127.0.0.1:6379/0", "key": "ctr:{ad_id}"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": "k"}, "needs the option 'url'"),
        ({**GOOD, "url": "http://x"}, "option 'url' must begin with redis://"),
        ({**GOOD, "kind": "hashes"}, "did you mean 'hash'"),
        ({**GOOD, "kind": "sorted_set"}, "needs the options 'member'"),
        ({**GOOD, "kind": "string", "fields": ["a"]}, "option 'fields' is for kind: hash"),
        ({**GOOD, "value": "a"}, "option 'value' is for the kinds string and pubsub"),
        ({**GOOD, "key": "ctr:{ad_id"}, "option 'key': .*single '{'"),
        ({**GOOD, "expire": "soon"}, "soon"),
        ({**GOOD, "kind": "pubsub", "expire": "window"}, "option 'expire' is for keys"),
        ({**GOOD, "expires": "1h"}, "did you mean 'expire'"),
    ],
)
def test_options_that_cannot_work_are_a_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_redis_sink(options)


def test_a_missing_package_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[redis\]'"):
        build_redis_sink(GOOD)


def test_the_password_is_in_no_sentence() -> None:
    assert build_redis_sink({**GOOD, "url": "redis://me:pw@db:7/0"}).where == "Redis at db:7"


PIPELINE = """
pipeline: p
streams: {hits: {source: {generator: {factory: "os:getcwd"}}}}
computations: {c: {input: {hits: {key: k}}, filter: "n > 1", output: out}}
sinks: {out: {redis: {url: "redis://127.0.0.1:6379/0", %s}}}
"""


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ('key: "{a}:{b}"', ("a", "b")),
        ('key: "{a}:{{b}}"', ("a",)),
        ('key: top, kind: sorted_set, member: "{m}", score: n', ("m",)),
        ('key: "{lower(a)}"', ()),
    ],
)
def test_versions_of_one_redis_key_come_to_one_shard(
    tmp_path: Any, options: str, names: tuple[str, ...]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE % options)
    key = load_pipeline(str(file)).sinks[0].key
    assert key.names == names
    assert (key.kind is KeyKind.RECORD) == (not names)


def test_a_stream_that_takes_records_back_is_no_stream_of_messages(tmp_path: Any) -> None:
    file = tmp_path / "p.yaml"
    text = PIPELINE.replace(
        'filter: "n > 1"', "window: {tumbling: 1m}, aggregate: {n: count}, accumulation: retracting"
    )
    file.write_text(text % "key: rows, kind: pubsub")
    with pytest.raises(PipelineError, match="carries retractions"):
        load_pipeline(str(file))


def test_the_page_shows_the_example_that_is_tested() -> None:
    example = (ROOT / "examples" / "redis" / "ctr.yaml").read_text().partition("\n")[2]
    assert f"```yaml\n{example}```" in (ROOT / "docs" / "redis.md").read_text()
