"""Who may ask the console: rules over a request's headers, and nothing else.

There are no cookies and no passwords: a browser that reaches the port may do what a client may. A
browser, though, is led to the port by pages that its user never meant to trust. Against these:

    DNS rebinding         Host is a number, localhost, or a name that the configuration lists
    another site's page   Sec-Fetch-Site and Origin, where the browser tells them, are our own
    a change              is a POST of JSON with our Origin, and with the token that only a page
                          of this origin can read; the token is another one after each start
"""

import hmac
import ipaddress
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from node.console.http import Request

TOKEN_HEADER: Final = "x-hourwheel-token"  # noqa: S105 - the name of a header
_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")
_READING: Final = ("GET", "HEAD")
_OWN_SITE: Final = ("same-origin", "none")
"""Of Sec-Fetch-Site; "none": typed by the user, or a bookmark."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not looked at any further."""

    status: HTTPStatus
    reason: str
    """A stable word for programs."""
    message: str


def host_of(authority: str) -> str | None:
    """The host of a Host header, in lower case and without brackets; None: it is none."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    return (found[1] or found[2]).lower().rstrip(".") or None


def is_address(host: str) -> bool:
    """Whether it is a number: no name server has a say in where it leads."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Gate:
    """See the top of this file."""

    names: frozenset[str]
    """Under which the console may be reached, in lower case, beside localhost and IP addresses."""
    token: str
    """That a change must bring."""

    def check(self, request: Request) -> Refusal | None:
        """What speaks against a request; None: nothing."""
        return self._check_host(request) or self._check_site(request) or self._check_change(request)

    def _check_host(self, request: Request) -> Refusal | None:
        host = host_of(request.headers.get("host", ""))
        if host is not None and (host == "localhost" or is_address(host) or host in self.names):
            return None
        return Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            "FOREIGN_HOST",
            "the console is not reached by this name; console.hosts lists those that are allowed",
        )

    def _check_site(self, request: Request) -> Refusal | None:
        headers = request.headers
        site = headers.get("sec-fetch-site", "none")
        # A link from elsewhere that somebody follows: the page is shown, nothing is done.
        is_link = (
            request.method in _READING
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        if site not in _OWN_SITE and not is_link:
            return _FOREIGN
        return None if self._has_own_origin(request, absent=True) else _FOREIGN

    def _has_own_origin(self, request: Request, *, absent: bool) -> bool:
        """Whether the page that asks is the console's own; `absent`: where nothing is said."""
        origin = request.headers.get("origin")
        host = request.headers["host"].lower()
        return absent if origin is None else origin.lower() in {f"http://{host}", f"https://{host}"}

    def _check_change(self, request: Request) -> Refusal | None:
        if request.method in _READING:
            return None
        if request.method != "POST":
            return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "BAD_METHOD", "only GET and POST are")
        if not self._has_own_origin(request, absent=False):
            return _FOREIGN
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return Refusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "NOT_JSON", "a change is sent as JSON"
            )
        given = request.headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return Refusal(
                HTTPStatus.FORBIDDEN, "STALE_TOKEN", "the node was started again: load the page"
            )
        return None


_FOREIGN: Final = Refusal(
    HTTPStatus.FORBIDDEN, "FOREIGN_ORIGIN", "a page of another origin may not ask the console"
)
