"""Options of the whole test suite, and what many tests share."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.fakes.s3_server import S3Server, s3_server

# Properties are tried with the same examples in every run, so that a change is judged by what it changes, and with
# fewer of them: `make test-search` draws new ones. No example has a deadline: the machine may have other work.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("search", deadline=None)
settings.load_profile("same")

_MANY = 300  # tests of a process


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """The collector need not look again and again at ten thousand tests and the modules that they import. Where there
    are few it does as ever: `tests/guard` compares with figures of processes that have no tests."""
    if len(session.items) > _MANY:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries complain at the end of what they have leaked


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what happened into tests/transcripts/*.yaml as what is expected; review it as a diff",
    )


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a command silences for the rest of its process must not silence the tests that come after it."""
    package, disabled = logging.getLogger("millwheel"), logging.root.manager.disable
    before = [(logger, logger.level, logger.propagate) for logger in (logging.root, package)]
    yield
    logging.disable(disabled)
    for logger, level, propagate in before:
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server process that speaks S3, with the environment that leads there."""
    with s3_server() as server:
        yield server
