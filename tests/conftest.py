"""Options of the whole test suite, and what many tests share."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from functools import wraps
from typing import Any

import pytest
from hypothesis import settings

from millwheel import testing
from tests.fakes.buckets import BucketServer
from tests.fakes.gcs_server import gcs_server
from tests.fakes.s3_server import S3Server, s3_server
from tests.servers.azurite import azurite, need_azurite

# Properties are tried with the same examples in every run, so that a change is judged by what it
# changes, and with fewer of them: `make test-search` draws new ones. No example has a deadline: the
# machine may have other work.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("search", deadline=None)
settings.load_profile("same")

_DENSER = 4
"""So many times more places of a crash are tried by `make test-search`."""
_MANY = 300  # tests of a process
SERVERS = {"broker": "kafka", "server": "postgres", "redis_server": "redis"}
"""The groups of tests that share a server of their process."""
LONG = (
    "kafka",
    "test_standalone",
    "test_run",
    "test_ui",
    "test_spark",
    "test_chaos",
    "test_enriched_run",
    "test_kills",
    "test_savepoints",
    "test_site",
    "test_replays",
    "test_forms",
    "test_poison",
)
"""The groups that take longest; they begin first, so that nothing waits for one of them at the
end."""


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile") != "search":
        return
    sweep = testing.assert_survives_crashes

    @wraps(sweep)
    def denser(*given: Any, every: int = 1, **options: Any) -> int:
        return sweep(*given, every=max(1, every // _DENSER), **options)

    testing.assert_survives_crashes = denser


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """The collector need not look again and again at ten thousand tests and the modules that they
    import. Where there are few it does as ever: `tests/guard` compares with figures of processes
    that have no tests."""
    if len(session.items) > _MANY:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, the slow tests of a file, or of a server, run in one process: what
    they share is started once."""
    for item in items:
        if item.get_closest_marker("slow"):
            shared = [SERVERS[name] for name in item.fixturenames if name in SERVERS]  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.xdist_group(shared[0] if shared else item.path.stem))
    items.sort(key=_is_late)


def _is_late(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    return LONG.index(group.args[0]) if group and group.args[0] in LONG else len(LONG)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries complain at the end of what they have leaked


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help=(
            "write what happened into tests/transcripts/*.yaml as what is expected; review it as a"
            " diff"
        ),
    )


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a command silences for the rest of its process must not silence the tests that come
    after it."""
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


@pytest.fixture(scope="session")
def gs() -> Iterator[BucketServer]:
    """The same for Google Cloud Storage."""
    with gcs_server() as server:
        yield server


@pytest.fixture(params=["s3", "gs"])
def bucket_server(request: pytest.FixtureRequest) -> BucketServer:
    """Each of the servers that fail on demand."""
    server: BucketServer = request.getfixturevalue(request.param)
    server.fail()
    return server


@pytest.fixture(scope="session")
def az() -> Iterator[BucketServer]:
    """The same for Azure."""
    need_azurite()
    with azurite() as server:
        yield server
