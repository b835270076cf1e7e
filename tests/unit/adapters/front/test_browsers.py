from __future__ import annotations

import pytest

from millwheel.adapters.front.browsers import BrowserRules, host_of, names_of

OWN = BrowserRules(names_of("127.0.0.1"))
HERE = {"host": "127.0.0.1:8080"}
THEIRS = "http://evil.example"


@pytest.mark.parametrize(
    "headers",
    [
        HERE,
        {
            "host": "localhost:8080",
            "sec-fetch-site": "same-origin",
            "origin": "http://localhost:8080",
        },
        {"host": "LocalHost"},
        {"host": "[::1]:8080", "sec-fetch-site": "none"},
    ],
)
def test_programs_and_our_own_pages_may_ask(headers: dict[str, str]) -> None:
    assert OWN.refused(headers) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (
            {
                "host": "evil.example:8080",
                "origin": "http://evil.example:8080",
                "sec-fetch-site": "same-origin",
            },
            421,
        ),
        ({}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({**HERE, "origin": THEIRS}, 403),
        ({**HERE, "origin": "null"}, 403),
        ({**HERE, "origin": "http://127.0.0.1:3000"}, 403),
        ({**HERE, "sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}, 403),
        ({**HERE, "sec-fetch-site": "same-site"}, 403),
        (
            {
                **HERE,
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "document",
            },
            403,
        ),
        ({**HERE, "sec-fetch-site": "anything"}, 403),
    ],
)
def test_pages_of_others_may_not(headers: dict[str, str], status: int) -> None:
    refused = OWN.refused(headers)
    assert refused is not None
    assert refused.status == status


def test_a_page_may_be_opened_by_a_link_but_not_framed() -> None:
    opened = {
        **HERE,
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert OWN.refused(opened, linked=True) is None
    assert OWN.refused({**opened, "sec-fetch-dest": "iframe"}, linked=True) is not None
    assert OWN.refused({**opened, "sec-fetch-mode": "no-cors"}, linked=True) is not None


def test_sites_that_were_allowed_may_ask_with_their_origin() -> None:
    rules = BrowserRules(names_of("127.0.0.1"), [THEIRS])
    asked = {**HERE, "origin": THEIRS, "sec-fetch-site": "cross-site"}
    assert rules.refused(asked) is None
    assert rules.refused({**asked, "origin": "http://worse.example"}) is not None
    assert rules.refused({**HERE, "sec-fetch-site": "cross-site"}) is not None, (
        "a picture, which sends no origin"
    )
    assert BrowserRules(origins="*").refused(asked) is None


def test_the_sentence_for_another_name_has_the_remedy() -> None:
    refused = BrowserRules(names_of("127.0.0.1"), remedy="use --allow-host NAME").refused(
        {"host": "a.example:1"}
    )
    assert refused is not None
    assert refused.sentence == "this server is not called 'a.example'; use --allow-host a.example"


def test_hosts_have_no_port_and_no_case() -> None:
    assert host_of("Example.com:80") == "example.com"
    assert host_of("[::1]:80") == "[::1]"
    assert host_of("") == ""


def test_without_names_any_is_taken() -> None:
    assert BrowserRules().refused({"host": "anything"}) is None


def test_programs_may_use_any_name_where_all_that_matters_is_a_post() -> None:
    rules = BrowserRules(names_of("127.0.0.1"), programs_by_any_name=True)
    assert rules.refused({"host": "ingest.internal:8080"}) is None
    rebound = {"host": "evil.example:8080", "origin": "http://evil.example:8080"}
    assert rules.refused(rebound) is not None
    assert rules.refused({"host": "evil.example:8080", "sec-fetch-site": "same-origin"}) is not None
    assert rules.refused({**HERE, "origin": THEIRS}) is not None
