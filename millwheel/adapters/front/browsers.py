"""The requests that a server accepts from browsers: for its own pages, and for addresses that a
person types, but not from the pages of others.

A server on the loopback answers to its own names only: a page elsewhere could give its own name our
address, and a browser would then take the two for one site (DNS rebinding). Browsers also name the
origin of a request, in headers that no page can change; programs send neither, and pass.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def content_policy(scripts: str = "'self'", styles: str = "'self'") -> str:
    """A content security policy: a page loads nothing from elsewhere, and nobody may frame it.
    ``scripts`` and ``styles`` are their sources."""
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


PAGE_HEADERS = {
    "content-security-policy": content_policy(),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of every response to a browser."""
_OWN_SITES = ("", "same-origin", "none")
"""Values of ``Sec-Fetch-Site``: no browser, our own page, or a person who typed the address."""


class RequestHeaders(Protocol):
    """The headers of a request, by names in any case."""

    def get(self, name: str, default: str, /) -> str: ...


@dataclass(frozen=True, slots=True)
class ForeignRequest:
    """The reason to refuse a request: the status, and a sentence."""

    status: int
    sentence: str


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """``names``: host names by which clients may call the server; () allows any. ``origins``: other
    sites whose pages may send requests; "*" means all. ``remedy`` ends the sentence for clients
    that use another name. ``programs_by_any_name``: only requests of browsers must use one of the
    names, where all that matters is a POST, with which browsers always send an origin."""

    names: Collection[str] = ()
    origins: Collection[str] = ()
    remedy: str = "call it localhost"
    programs_by_any_name: bool = False

    def refused(self, headers: RequestHeaders, linked: bool = False) -> ForeignRequest | None:
        """The reason why the request is foreign, None if it is not. ``linked``: it is for a
        page, to which other sites may have links."""
        host, origin, site = (
            headers.get(name, "") for name in ("host", "origin", "sec-fetch-site")
        )
        must_be_named = bool(origin or site) or not self.programs_by_any_name
        if self.names and must_be_named and host_of(host) not in self.names:
            name = host_of(host)
            return ForeignRequest(
                421, f"this server is not called {name!r}; {self.remedy.replace('NAME', name)}"
            )
        if origin and (origin in self.origins or "*" in self.origins):
            return None
        if origin and origin.partition("://")[2] != host:
            return ForeignRequest(403, f"a page of {origin} may not ask this server")
        if site in _OWN_SITES or (linked and _is_opened(headers)):
            return None
        return ForeignRequest(403, "a page of another site may not ask this server")


def host_of(header: str) -> str:
    """The host of a ``Host`` header, in lower case, without its port."""
    host = header[: header.find("]") + 1] if header.startswith("[") else header.partition(":")[0]
    return host.lower()


def names_of(host: str, more: Collection[str] = ()) -> tuple[str, ...]:
    """The names of a server that listens on ``host``, an address of this machine, and the added
    names."""
    return (*LOOPBACK_NAMES, host.lower(), *(name.lower() for name in more))


def _is_opened(headers: RequestHeaders) -> bool:
    """Whether a person followed a link, and sees the page in a tab of its own: nothing of it
    reaches the other page."""
    return (
        headers.get("sec-fetch-mode", "") == "navigate"
        and headers.get("sec-fetch-dest", "") == "document"
    )
