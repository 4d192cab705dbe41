"""What came of a POST, in a word. Pure."""

from enum import StrEnum
from typing import Final

_REDIRECTS: Final = range(300, 400)
_REFUSALS: Final = range(400, 500)
_DONE: Final = range(200, 300)


class PostResult(StrEnum):
    """A label of metrics: there are no others."""

    DONE = "done"
    REDIRECT = "redirect"
    REFUSED = "refused"
    FAILED = "failed"
    TIMEOUT = "timeout"
    UNRESOLVED = "unresolved"
    ADDRESS_REFUSED = "address_refused"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    CLOSED = "closed"
    NOT_HTTP = "not_http"
    DAMAGED = "damaged"


def result_of(status: int) -> PostResult:
    """Of a POST that was answered."""
    if status in _DONE:
        return PostResult.DONE
    if status in _REDIRECTS:
        return PostResult.REDIRECT
    return PostResult.REFUSED if status in _REFUSALS else PostResult.FAILED
