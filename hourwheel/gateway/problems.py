"""What went wrong, as HTTP says it: a status, and an `application/problem+json` (RFC 9457).

    {"type": "about:blank", "title": "Quota exceeded", "status": 429, "reason": "QUOTA_EXCEEDED",
     "detail": "for people", "params": {"retry_after_ms": "700"}}

`reason` and `params` are those of `hourwheel.errors`. This is the one table from there to HTTP, as
`hourwheel/transport/grpc_status.py` is to gRPC. Pure.
"""

import math
from http import HTTPStatus
from typing import ClassVar, Final

from hourwheel import errors

BY_CODE: Final = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "CANCELLED": 503,
    "DATA_LOSS": 500,
    "INTERNAL": 500,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "UNKNOWN": 500,
}
"""Name of a gRPC status code -> the status where the reason has none of its own."""
BY_REASON: Final = {
    "BATCH_TOO_LARGE": 413,
    "DISK_FULL": 507,
    "MESSAGE_TOO_LARGE": 413,
    "OUT_OF_ORDER_SEQUENCE": 422,  # an idempotency key that stood for other messages
    "OVERLOADED": 503,
    "QUOTA_REACHED": 403,
    "TLS_FAILED": 502,
    "TOO_MANY_ITEMS": 413,
    "UNPROTECTED": 502,
}
CHALLENGE: Final = 'Basic realm="hourwheel", charset="UTF-8", Bearer realm="hourwheel"'
RETRY_AFTER_S: Final = 1
"""Where waiting helps and the node does not say for how long."""
_TEXT_CHARS_MAX: Final = 1_024
_PARAM_CHARS_MAX: Final = 256
_WAITING_HELPS: Final = frozenset({429, 503, 507})
_SECOND_MS: Final = 1_000


class HttpRefused(errors.HourwheelError):
    """What the gateway itself refuses, before any node is asked."""

    reason = "HTTP_REFUSED"
    status: ClassVar[int] = 400


class NoSuchPath(HttpRefused):
    """There is nothing at this path."""

    reason = "NO_SUCH_PATH"
    status = 404


class MethodNotAllowed(HttpRefused):
    """The path does not take this method; `params` say which it takes."""

    reason = "METHOD_NOT_ALLOWED"
    status = 405


class RequestTimeout(HttpRefused):
    """The request did not arrive in time."""

    reason = "REQUEST_TIMEOUT"
    status = 408


class BodyTooLarge(HttpRefused):
    """The body has more bytes than the gateway takes."""

    reason = "BODY_TOO_LARGE"
    status = 413


class NotJson(HttpRefused):
    """The body is no JSON, or is nested too deeply."""

    reason = "NOT_JSON"


class WrongMediaType(HttpRefused):
    """The body's Content-Type is not application/json."""

    reason = "WRONG_MEDIA_TYPE"
    status = 415


class NotHttp(HttpRefused):
    """The request breaks the rules of HTTP/1.1."""

    reason = "NOT_HTTP"


class HeadTooLarge(HttpRefused):
    """The head of the request has more bytes than the gateway takes."""

    reason = "HEAD_TOO_LARGE"
    status = 431


class ForeignPage(HttpRefused):
    """The request comes from a web page, or for a name that the gateway does not go by."""

    reason = "FOREIGN_PAGE"
    status = 403


class KeyReused(HttpRefused):
    """The idempotency key stood for another request before."""

    reason = "IDEMPOTENCY_KEY_REUSED"
    status = 422


def status_of(error: errors.HourwheelError) -> int:
    """The status that an error is answered with."""
    if isinstance(error, HttpRefused):
        return error.status
    found = BY_REASON.get(error.reason)
    return BY_CODE.get(error.code, 500) if found is None else found


def problem_of(error: errors.HourwheelError) -> dict[str, object]:
    """The body of the answer."""
    status = status_of(error)
    title = error.reason.replace("_", " ").capitalize()
    found: dict[str, object] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "reason": error.reason,
        "detail": error.message[:_TEXT_CHARS_MAX],
    }
    if error.params:
        found["params"] = {name: text[:_PARAM_CHARS_MAX] for name, text in error.params.items()}
    return found


def headers_of(error: errors.HourwheelError) -> dict[str, str]:
    """What belongs into the head of the answer: Retry-After, Allow, the challenge of a 401."""
    status = status_of(error)
    if status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": CHALLENGE}
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return {"allow": error.params.get("allow", "")}
    if status in _WAITING_HELPS and error.retriable:
        wait_ms = error.retry_after_ms if isinstance(error, errors.QuotaExceeded) else 0
        return {"retry-after": str(max(RETRY_AFTER_S, math.ceil(wait_ms / _SECOND_MS)))}
    return {}
