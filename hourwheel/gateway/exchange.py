"""HTTP/1.1 on one connection: h11 knows the rules, and here are the bounds and the deadlines.

    head, within head_ms and head_bytes --> the site --> body, within body_ms and body_bytes
      --> the answer, within answer_ms --> the next head, or the end

While the site works, the connection is looked at: a caller who hangs up ends the work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum
from typing import Any, Final, Protocol

import h11

from hourwheel import errors
from hourwheel.gateway import problems

LINGER_MS: Final = 500.0
LINGER_CHUNKS: Final = 64
_CHUNK_BYTES: Final = 65_536
_ONCE: Final = frozenset({"authorization", "content-type", "host", "idempotency-key", "origin"})
"""Of these a request has one, or it would mean two things."""
_SECOND_MS: Final = 1_000
_HEAD_STATUS: Final = 431


class Waiting(Enum):
    """What a connection waits for that may give way: nothing of its request has been done."""

    HEAD = "head"
    """Or for nothing more: it is being closed."""
    BODY = "body"


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request."""

    method: str
    target: str
    """As it was sent."""
    headers: Mapping[str, str]
    """Names in lower case."""
    source: str
    """Address of who sent it."""
    certificate_name: str = ""
    """The name in a verified certificate."""


@dataclass(slots=True)
class Response:
    """An answer."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    on_unsent: Callable[[], Awaitable[object]] | None = None
    """Called where it could not be written."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one connection; see `settings.HttpSection`."""

    head_bytes: int
    body_bytes: int
    head_ms: int
    body_ms: int
    answer_ms: int


class Answers(Protocol):
    """The site."""

    async def answer(self, request: Request, read_body: Callable[[], Awaitable[bytes]]) -> Response:
        """The answer to a request; whatever goes wrong is one, too."""
        ...

    def refuse(self, error: errors.HourwheelError) -> Response:
        """The answer to what is no request."""
        ...


class ByteBudget:
    """Bytes that all connections together may hold."""

    def __init__(self, bytes_max: int) -> None:
        """Nothing is taken yet."""
        self._bytes_max, self._left = bytes_max, bytes_max

    @property
    def taken(self) -> int:
        """By all connections."""
        return self._bytes_max - self._left

    def change(self, bytes_max: int) -> None:
        """Another bound; what is taken stays so."""
        self._left += bytes_max - self._bytes_max
        self._bytes_max = bytes_max

    def take(self, count: int) -> None:
        """Raises Overloaded: there are not so many left."""
        if count > self._left:
            raise errors.Overloaded("too many bodies at one time", limit="bodies_bytes")
        self._left -= count

    def take_late(self, count: int) -> None:
        """They are there already: others have to wait."""
        self._left -= count

    def give_back(self, count: int) -> None:
        """They are free again."""
        self._left += count


class Exchange:
    """One connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        site: Answers,
        bounds: Bounds,
        budget: ByteBudget,
        *,
        wall_ms: Callable[[], float],
        note_waiting: Callable[[Waiting | None], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        """A connection that has just been accepted.

        Args:
            reader: what comes.
            writer: what goes.
            site: answers.
            bounds: of sizes and times.
            budget: of all connections.
            wall_ms: for the head `date`.
            note_waiting: called with what is waited for: such connections may be ended.
            is_stopping: no further request is taken.
        """
        self._reader, self._writer, self._site = reader, writer, site
        self._bounds, self._budget, self._wall_ms = bounds, budget, wall_ms
        self._note_waiting, self._is_stopping = note_waiting, is_stopping
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=bounds.head_bytes)
        self._taken = 0
        self._is_read = asyncio.Event()
        """All of the request is there."""
        self._method = ""
        self._announced = 0
        """Bytes of the body, as its head says."""
        peer = writer.get_extra_info("peername")
        self._source = str(peer[0]) if isinstance(peer, tuple) else ""
        self.certificate_name = ""

    async def run(self) -> None:
        """Until the connection ends."""
        self._writer.transport.set_write_buffer_limits(0)  # drained: the kernel has it
        while not self._is_stopping():
            self._note_waiting(Waiting.HEAD)
            try:
                request = await self._read_head()
            except errors.HourwheelError as error:
                await self._send(self._site.refuse(error))
                return
            finally:
                self._note_waiting(None)
            if request is None:
                return
            try:
                if not await self._exchange(request):
                    return
            finally:
                self._budget.give_back(self._taken)
                self._taken = 0
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()
            self._is_read.clear()

    async def _read_head(self) -> Request | None:
        """None: there is none any more."""
        try:
            async with asyncio.timeout(self._bounds.head_ms / _SECOND_MS):
                while (event := self._next_event()) is h11.NEED_DATA:
                    raw = await self._reader.read(_CHUNK_BYTES)
                    if not raw and self._http.trailing_data == (b"", False):
                        return None
                    self._http.receive_data(raw)
        except TimeoutError:
            if self._http.trailing_data == (b"", False):
                return None  # idle
            raise problems.RequestTimeout from None
        if not isinstance(event, h11.Request):
            return None
        return self._request_of(event)

    def _next_event(self) -> Any:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == _HEAD_STATUS:
                raise problems.HeadTooLarge from None
            raise problems.NotHttp(str(error)) from None

    def _request_of(self, event: h11.Request) -> Request:
        headers: dict[str, str] = {}
        size = len(event.target) + sum(len(name) + len(raw) for name, raw in event.headers)
        if size > self._bounds.head_bytes:  # h11 bounds only what has come in parts
            raise problems.HeadTooLarge
        for raw_name, raw in event.headers:
            name = raw_name.decode("ascii").lower()
            if name in _ONCE and name in headers:
                raise problems.NotHttp(f"the head has {name} twice")
            headers[name] = raw.decode("latin-1")
        self._method, target = event.method.decode("ascii"), event.target.decode("ascii")
        self._announced = int(headers.get("content-length", "0"))  # h11 has checked it
        return Request(self._method, target, headers, self._source, self.certificate_name)

    async def _exchange(self, request: Request) -> bool:
        """One answer; False: the caller has gone."""
        work = asyncio.ensure_future(self._site.answer(request, self._read_body))
        watch = asyncio.ensure_future(self._watch(work))
        try:
            await asyncio.wait([work])
        finally:
            work.cancel()
            watch.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)
        if work.cancelled():
            return False
        response = work.result()
        self._taken += len(response.body)
        self._budget.take_late(len(response.body))
        if await self._send(response):
            return True
        if response.on_unsent is not None:
            await response.on_unsent()
        return False

    async def _read_body(self) -> bytes:
        """All of it.

        Raises:
            BodyTooLarge: nothing more is read.
            Overloaded: other connections have what there is for bodies.
            RequestTimeout: it has not come in time.
            NotHttp: it is not as its head says.
        """
        parts: list[bytes] = []
        size = 0
        if self._announced > self._bounds.body_bytes:
            raise problems.BodyTooLarge(bytes_max=self._bounds.body_bytes)
        if self._http.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            self._writer.write(self._http.send(go_on) or b"")
        self._note_waiting(Waiting.BODY)
        try:
            async with asyncio.timeout(self._bounds.body_ms / _SECOND_MS):
                while True:
                    event = self._next_event()
                    if event is h11.NEED_DATA:
                        self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
                    elif isinstance(event, h11.Data):
                        size += len(event.data)
                        if size > self._bounds.body_bytes:
                            raise problems.BodyTooLarge(bytes_max=self._bounds.body_bytes)
                        self._budget.take(len(event.data))
                        self._taken += len(event.data)
                        parts.append(bytes(event.data))
                    else:
                        self._is_read.set()
                        return b"".join(parts)
        except TimeoutError:
            raise problems.RequestTimeout from None
        finally:
            self._note_waiting(None)

    async def _watch(self, work: "asyncio.Future[Response]") -> None:
        """End the work when the caller hangs up, once all of the request has been read."""
        await self._is_read.wait()
        raw = await self._reader.read(_CHUNK_BYTES)
        if raw:
            self._http.receive_data(raw)  # of the next request: whether it hangs up is not seen now
        else:
            work.cancel()

    async def _send(self, response: Response) -> bool:
        """Whether it was written."""
        headers = {
            "content-type": "application/json",
            "content-length": str(len(response.body)),
            "date": formatdate(self._wall_ms() / _SECOND_MS, usegmt=True),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **response.headers,
        }
        if self._http.their_state is not h11.DONE or self._is_stopping():
            headers["connection"] = "close"
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return False
        head = h11.Response(status_code=response.status, headers=list(headers.items()))
        body = b"" if self._method == "HEAD" else response.body
        try:
            raw = [self._http.send(head) or b""]
            raw.append(self._http.send(h11.Data(data=body)) or b"")
            raw.append(self._http.send(h11.EndOfMessage()) or b"")
            self._writer.write(b"".join(raw))
            async with asyncio.timeout(self._bounds.answer_ms / _SECOND_MS):
                await self._writer.drain()
                if self._http.their_state in {h11.SEND_BODY, h11.ERROR}:
                    self._note_waiting(Waiting.HEAD)  # and so gives way
                    await self._linger()
        except (OSError, TimeoutError, h11.LocalProtocolError):
            return False
        return True

    async def _linger(self) -> None:
        """Read a little of what is still on its way: else the answer would be lost with it."""
        if self._writer.can_write_eof():
            self._writer.write_eof()
        try:
            async with asyncio.timeout(LINGER_MS / _SECOND_MS):
                for _ in range(LINGER_CHUNKS):
                    if not await self._reader.read(_CHUNK_BYTES):
                        return
        except TimeoutError:
            return
