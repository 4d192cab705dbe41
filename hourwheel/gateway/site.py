"""From a request to its answer; little is done for what will be refused.

    path, method --> web pages --> who calls --> the body's size and type --> JSON --> its types
      --> the call

Where anything is wrong, the answer is a problem (`problems`), and nothing was done.
"""

import asyncio
import contextlib
import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from pydantic import TypeAdapter

from hourwheel import errors
from hourwheel.gateway import models, problems
from hourwheel.gateway.bodies import checked
from hourwheel.gateway.callers import Callers
from hourwheel.gateway.calls import IDEMPOTENCY_KEY, Call, Done
from hourwheel.gateway.exchange import Request, Response
from hourwheel.gateway.metrics import GONE, OTHER, HttpCounts
from hourwheel.gateway.recent_keys import RecentKeys
from hourwheel.gateway.routes import JSON, Route

PROBLEM: Final = "application/problem+json"
QUERY_FIELDS_MAX: Final = 16
_ABOUT: Final = (["healthz"], ["readyz"], ["openapi.json"])
_SECOND_MS: Final = 1_000
_UNDONE: Final = (
    errors.InvalidArgument,
    errors.NotFound,
    errors.FailedPrecondition,
    errors.ResourceExhausted,
    errors.PermissionDenied,
    errors.Unauthenticated,
)
"""Where trying again does not help, a call that ends so has certainly not happened, but for"""
_PERHAPS_DONE: Final = (errors.AlreadyPending, errors.FeatureLevelTooLow)
"""these, which are found in a node's answer."""
_log = logging.getLogger("hourwheel.http")


class Site:
    """Answers requests. Belongs to one event loop."""

    def __init__(
        self,
        routes: Sequence[Route],
        callers: Callers,
        *,
        openapi: bytes,
        counts: HttpCounts,
        hosts: Sequence[str] = (),
    ) -> None:
        """A site.

        Args:
            routes: its calls.
            callers: find out who calls.
            openapi: the document of `routes`.
            counts: for metrics.
            hosts: names by which callers without credentials may call it, beside addresses.
        """
        self._routes = [(route, route.parts, route.adapter()) for route in routes]
        self._callers, self._openapi, self._counts = callers, openapi, counts
        self.change(hosts)
        self._recent = RecentKeys()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Long polls end, and calls from now on are answered that they should go elsewhere."""
        self._stopping.set()

    def change(self, hosts: Sequence[str]) -> None:
        """See `__init__`."""
        self._hosts = frozenset(host.lower() for host in hosts) | {"localhost"}

    @property
    def is_stopping(self) -> bool:
        """`stop` was called."""
        return self._stopping.is_set()

    async def answer(self, request: Request, read_body: Callable[[], Awaitable[bytes]]) -> Response:
        """See `exchange.Answers`."""
        loop, counts = asyncio.get_running_loop(), self._counts
        route, begun_s, status = self._name_of(request), loop.time(), GONE
        counts.inflight[route] += 1
        try:
            response = await self._answer_whatever(request, read_body)
            status = str(response.status)
            counts.response_bytes += len(response.body)
            return response
        finally:
            counts.inflight[route] -= 1
            counts.add(route, status, (loop.time() - begun_s) * _SECOND_MS)

    def _name_of(self, request: Request) -> str:
        """Of the route, for metrics."""
        with contextlib.suppress(errors.HourwheelError):
            parts = _parts_of(request.target.partition("?")[0])
            if parts in _ABOUT:
                return parts[0]
            return self._find(parts, request.method)[0].name
        return OTHER

    async def _answer_whatever(
        self, request: Request, read_body: Callable[[], Awaitable[bytes]]
    ) -> Response:
        try:
            return await self._answer(request, read_body)
        except errors.HourwheelError as error:
            if isinstance(error, errors.PermissionDenied) and _is_nobody(request):
                error = errors.Unauthenticated("credentials are needed")
            return self.refuse(error)
        except Exception:  # noqa: BLE001 - a bug: others are served all the same
            _log.exception("a bug: %s", request.method)
            return self.refuse(errors.Internal("internal error; the gateway's log tells more"))

    def refuse(self, error: errors.HourwheelError) -> Response:
        """See `exchange.Answers`."""
        self._counts.add_refused(error)
        body = json.dumps(problems.problem_of(error)).encode()
        headers = {"content-type": PROBLEM, **problems.headers_of(error)}
        return Response(problems.status_of(error), body, headers)

    async def _answer(
        self, request: Request, read_body: Callable[[], Awaitable[bytes]]
    ) -> Response:
        path, _, query = request.target.partition("?")
        parts = _parts_of(path)
        if parts in _ABOUT:
            return await self._answer_about(parts[0], request)
        route, names, adapter = self._find(parts, request.method)
        self._check_page(request)
        if self._stopping.is_set():
            raise errors.ShuttingDown("the gateway is stopping")
        authorization = self._callers.authorization_of(
            request.headers.get("authorization"), request.certificate_name
        )
        caller = await self._callers.enter(authorization, request.source)
        failure: errors.HourwheelError | None = None
        new_key: tuple[str, str, str] | None = None
        """An idempotency key that stands for this call, and for none before."""
        try:
            raw = await self._read(request, route, read_body)
            body = None if adapter is None else checked(adapter, raw)
            call = Call(caller, names, _query_of(query, route), request.headers, body)
            if route.takes_key and (key := request.headers.get(IDEMPOTENCY_KEY)) is not None:
                recent = caller.name, path, key
                new_key = recent if self._recent.check(recent, raw) else None
            done = await self._run(route, call)
        except errors.HourwheelError as error:
            failure = error
            if new_key is not None and _is_undone(error):
                self._recent.forget(new_key)
            raise
        finally:
            self._callers.leave(caller, failure)
        raw_answer = done.answer.model_dump_json(exclude_none=True).encode()
        return Response(route.status, raw_answer, on_unsent=_quiet(done.on_unsent))

    async def _run(self, route: Route, call: Call) -> Done:
        """The call; one that waits ends when the gateway stops."""
        if not route.is_waiting:
            return await route.handle(call)
        work = asyncio.ensure_future(route.handle(call))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise errors.ShuttingDown("the gateway is stopping")
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)

    # --- what is asked --------------------------------------------------------------------------

    def _find(
        self, parts: list[str], method: str
    ) -> tuple[Route, dict[str, str], TypeAdapter[Any] | None]:
        allowed: list[str] = []
        for route, wanted, adapter in self._routes:
            names = _match(wanted, parts)
            if names is None:
                continue
            if route.method == method:
                return route, names, adapter
            allowed.append(route.method)
        if allowed:
            raise problems.MethodNotAllowed(allow=", ".join(allowed))
        raise problems.NoSuchPath

    def _check_page(self, request: Request) -> None:
        """No web page calls this: it has no cookies, and no page may use a caller's address."""
        if "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none":
            raise problems.ForeignPage("web pages may not call this")
        if _is_nobody(request) and not self._is_own(request.headers.get("host", "")):
            raise problems.ForeignPage("without credentials it is called by address, or by `hosts`")

    def _is_own(self, host: str) -> bool:
        name = host.lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        if not name or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def _read(
        self, request: Request, route: Route, read_body: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        if route.body is not None:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != JSON:
                raise problems.WrongMediaType(f"the body's Content-Type is {JSON}")
            if request.headers.get("content-encoding", "identity") != "identity":
                raise problems.WrongMediaType("compressed bodies are not taken")
        raw = await read_body()
        self._counts.request_bytes += len(raw)
        if raw and route.body is None:
            raise errors.InvalidArgument(f"{route.method} takes no body here")
        return raw

    async def _answer_about(self, what: str, request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            raise problems.MethodNotAllowed(allow="GET, HEAD")
        if what == "openapi.json":
            return Response(200, self._openapi)
        if self._stopping.is_set():
            return _health(503, "stopping")
        if what == "readyz" and not await self._callers.is_reaching_nodes():
            return _health(503, "no node in reach")
        return _health(200, "ok")


def _health(status: int, text: Any) -> Response:
    return Response(status, models.Health(status=text).model_dump_json().encode())


def _is_undone(error: errors.HourwheelError) -> bool:
    """Whether a call that ends so has certainly not happened."""
    is_refused = isinstance(error, _UNDONE) and not isinstance(error, _PERHAPS_DONE)
    return is_refused and not error.retriable


def _is_nobody(request: Request) -> bool:
    return "authorization" not in request.headers and not request.certificate_name


def _parts_of(path: str) -> list[str]:
    """The words of a path, decoded. Raises InvalidArgument: they are not UTF-8."""
    try:
        return [unquote(part, errors="strict") for part in path.strip("/").split("/")]
    except UnicodeDecodeError:
        raise errors.InvalidArgument("the path is not UTF-8", field="path") from None


def _match(wanted: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    if len(wanted) != len(parts):
        return None
    names: dict[str, str] = {}
    for pattern, part in zip(wanted, parts, strict=True):
        if pattern.startswith("{"):
            names[pattern[1:-1]] = part
        elif pattern != part:
            return None
    return names


def _query_of(query: str, route: Route) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError:
        raise errors.InvalidArgument("the query cannot be read", field="query") from None
    found = dict(pairs)
    unknown = found.keys() - set(route.query)
    if unknown or len(found) != len(pairs):
        raise errors.InvalidArgument(
            f"the query has what is not known, or twice: {sorted(unknown)}", field="query"
        )
    return found


def _quiet(
    give_back: Callable[[], Awaitable[object]] | None,
) -> Callable[[], Awaitable[object]] | None:
    """Without an error: what is not given back comes again when its lease ends."""
    if give_back is None:
        return None

    async def run() -> None:
        with contextlib.suppress(errors.HourwheelError):
            await give_back()

    return run
