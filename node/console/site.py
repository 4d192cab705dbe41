"""The console's site: each request through the gate, then to a file or to the API.

On the port's loop; what the API does runs on the node's.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from hourwheel import errors
from hourwheel.errors import HourwheelError
from node.console.api import PREFIX
from node.console.gate import Gate, Refusal
from node.console.http import Answer, Request
from node.console.logins import Logins
from node.console.pace import Pace

FOLDER: Final = Path(__file__).resolve().parent / "static"
KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Suffix of a file -> its type."""
_JSON: Final = "application/json"
_WORK_S: Final = 25.0
"""A request may take so long."""
_FIELD_COUNT_MAX: Final = 16
SECURITY: Final = {
    "Content-Security-Policy": "; ".join(
        (
            *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'"),
            *("connect-src 'self'", "base-uri 'none'", "form-action 'none'"),
            *("frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types"),
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every answer: only files of this port are run, no site may frame the page, and no text
can become a script."""
_STATUS: Final = {
    "INVALID_ARGUMENT": HTTPStatus.BAD_REQUEST,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "ALREADY_EXISTS": HTTPStatus.CONFLICT,
    "FAILED_PRECONDITION": HTTPStatus.CONFLICT,
    "RESOURCE_EXHAUSTED": HTTPStatus.TOO_MANY_REQUESTS,
    "UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "DEADLINE_EXCEEDED": HTTPStatus.GATEWAY_TIMEOUT,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "PERMISSION_DENIED": HTTPStatus.FORBIDDEN,
}
"""gRPC's code -> HTTP's; any other is a failure of the node's."""
_NO_LOGIN: Final = Refusal(
    HTTPStatus.UNAUTHORIZED, "NO_LOGIN", "access control is on: the console needs a login"
)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the site."""

    content: bytes
    kind: str
    tag: str = field(init=False)
    """What a browser asks with whether it has this one already."""

    def __post_init__(self) -> None:
        """Make the tag."""
        digest = hashlib.sha256(self.content).hexdigest()[:32]
        object.__setattr__(self, "tag", f'"{digest}"')


def read_files(folder: Path = FOLDER) -> dict[str, File]:
    """Path on the site -> file; all of them, read once, so that no request reaches the disk."""
    found = {
        f"/{path.relative_to(folder).as_posix()}": File(path.read_bytes(), KINDS[path.suffix])
        for path in sorted(folder.rglob("*"))
        if path.suffix in KINDS
    }
    found["/"] = found["/index.html"]
    return found


class Site:
    """See the top of this file."""

    def __init__(
        self,
        gate: Gate,
        logins: Logins,
        files: Mapping[str, File],
        *,
        node_loop: asyncio.AbstractEventLoop,
        monotonic_ms: Callable[[], float],
    ) -> None:
        """Put together.

        Args:
            gate: who may ask.
            logins: have what answers; on `node_loop` only.
            files: as `read_files` gives them.
            node_loop: the node's.
            monotonic_ms: a clock.
        """
        self._gate, self._logins, self._files = gate, logins, files
        self._node_loop, self._monotonic_ms = node_loop, monotonic_ms
        self._pace = Pace()

    async def answer(self, request: Request) -> Answer:
        """What a browser gets."""
        refusal = self._gate.check(request)
        if refusal is not None:
            return _refused(refusal)
        if self._logins.needs_login and "authorization" not in request.headers:
            return _refused(_NO_LOGIN)
        path, _, query = request.target.partition("?")
        if path.startswith(PREFIX):
            return await self._answer_api(path.removeprefix(PREFIX), query, request)
        file = self._files.get(path)
        if file is None or request.method == "POST":
            return _refused(Refusal(HTTPStatus.NOT_FOUND, "NO_PAGE", "there is no such page"))
        headers = {**SECURITY, "ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Answer(HTTPStatus.NOT_MODIFIED, b"", file.kind, headers)
        return Answer(HTTPStatus.OK, file.content, file.kind, headers)

    async def _answer_api(self, name: str, query: str, request: Request) -> Answer:
        if not self._pace.admit(self._monotonic_ms()):
            return self._error(
                HTTPStatus.TOO_MANY_REQUESTS, "TOO_MANY_CONSOLES", "many consoles are open"
            )
        is_change = request.method == "POST"
        if name == "session" and not is_change:
            return self._json({"token": self._gate.token})
        if not self._logins.has(name, is_change=is_change):
            return self._error(HTTPStatus.NOT_FOUND, "NO_SUCH_CALL", "there is no such call")
        try:
            given = _body(request.body) if is_change else _question(query)
            login = request.headers.get("authorization", "")
            work = self._work(login, name, given, is_change=is_change)
            return self._json(await self._on_the_nodes_loop(work))
        except HourwheelError as error:
            status = _STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            return self._error(status, error.reason, error.message, error.params)

    async def _work(
        self, login: str, name: str, given: Mapping[str, object], *, is_change: bool
    ) -> dict[str, object]:
        api = await self._logins.find(login)
        return await (api.change(name, given) if is_change else api.read(name, given))

    async def _on_the_nodes_loop(
        self, work: Coroutine[object, None, dict[str, object]]
    ) -> dict[str, object]:
        running = asyncio.run_coroutine_threadsafe(work, self._node_loop)
        try:
            async with asyncio.timeout(_WORK_S):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            running.cancel()
            raise errors.Timeout("the node did not answer in time") from None

    def _json(self, values: Mapping[str, object], status: HTTPStatus = HTTPStatus.OK) -> Answer:
        content = {**values, "poll_ms": self._pace.poll_ms}
        return Answer(
            status,
            json.dumps(content, separators=(",", ":"), allow_nan=False).encode(),
            _JSON,
            _headers_of(status),
        )

    def _error(
        self,
        status: HTTPStatus,
        reason: str,
        message: str,
        params: Mapping[str, str] | None = None,
    ) -> Answer:
        values = {"reason": reason, "message": message, "params": params or {}}
        return self._json({"error": values}, status)


def _refused(refusal: Refusal) -> Answer:
    values = {"error": {"reason": refusal.reason, "message": refusal.message, "params": {}}}
    return Answer(refusal.status, json.dumps(values).encode(), _JSON, _headers_of(refusal.status))


def _headers_of(status: HTTPStatus) -> dict[str, str]:
    headers = {**SECURITY, "Cache-Control": "no-store"}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Basic realm="Hourwheel", charset="UTF-8"'
    return headers


def _question(query: str) -> dict[str, str]:
    try:
        found = parse_qsl(query, keep_blank_values=True, max_num_fields=_FIELD_COUNT_MAX)
    except ValueError:
        raise errors.InvalidArgument("too many fields") from None
    return dict(found)


def _body(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise errors.InvalidArgument("the body is not JSON") from None
    if not isinstance(found, dict):
        raise errors.InvalidArgument("the body is not an object")
    return found
