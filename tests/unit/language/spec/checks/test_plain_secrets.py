from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline

PIPELINE = """
pipeline: plain
streams:
  hits: {{source: {{files: {{path: hits.jsonl, format: jsonl}}}}, timestamp: ts}}
computations:
  call:
    input: {{hits: {{key: token}}}}
    callback: calling:Call
    options: {{{option}}}
    output: out
sinks:
  out: {{files: {{path: out}}}}
"""
CODE = """
from millwheel import Computation

class Call(Computation):
    def __init__(self, **options):
        pass

    def process_record(self, ctx, record):
        ctx.produce("out", {})
"""


@pytest.fixture
def told(tmp_path: Path):  # type: ignore[no-untyped-def]
    def tell(option: str, secured: bool = False) -> list[str]:
        (tmp_path / "calling.py").write_text(CODE)
        (tmp_path / "p.yaml").write_text(PIPELINE.format(option=option))
        environ = {"DB_PASSWORD": "from-outside", "URL": "redis://me:pw@host"}
        found = check_pipeline(tmp_path / "p.yaml", {}, environ, secured=secured)[1]
        return [each for each in found if "secret" in each]

    return tell


@pytest.mark.parametrize(
    "option",
    [
        "password: hunter2",
        'password: "${DB_PASSWORD}"',
        'to: "${URL}"',
        "auth: {client: {secret: x}}",
        "pin: 12",
    ],
)
def test_a_secret_in_plain_text_is_warned_of_and_refused_where_a_run_is_secured(
    told, option: str
) -> None:  # type: ignore[no-untyped-def]
    (warning,) = told(option)
    assert ":9: computations.call.options." in warning
    assert "${secret:NAME}" in warning
    assert "from-outside" not in warning
    with pytest.raises(PipelineError, match=r"write \$\{secret:NAME\}"):
        told(option, secured=True)


@pytest.mark.parametrize(
    "option",
    [
        'password: "${secret:DB}"',
        "token_field: x",
        'url: "redis://${secret:A}@h"',
        "fields: {token: t}",
    ],
)
def test_what_is_none_passes(told, option: str) -> None:  # type: ignore[no-untyped-def]
    assert not told(option, secured=True)
