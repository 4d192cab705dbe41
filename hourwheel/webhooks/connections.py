"""Connections to one target: each to an address that is allowed, and kept for a while.

    dial --> exchange (POST, head of the answer) --> rest of the answer, if short --> kept
      --> exchange ... or, after `keep_ms`, at `AGE_MS_MAX` or at a word out of turn, closed

Of each name it is known for some seconds what its addresses are (`names.py`). For each connection
one of them is taken that is allowed, and that very address is connected to: nothing is resolved
between the look and the connection. A kept connection is to an address that was allowed as it was
made, and is no older than `AGE_MS_MAX`: a name that has moved is followed. Proxies of the
environment are not used.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import h11

from hourwheel import errors
from hourwheel.webhooks.answers import Answer
from hourwheel.webhooks.names import Names, Unresolved
from hourwheel.webhooks.results import PostResult
from hourwheel.webhooks.settings import Target

HEAD_BYTES_MAX: Final = 16_384
REST_BYTES_MAX: Final = 16_384
"""Of an answer's body that are read, and thrown away, to keep the connection; and"""
REST_MS_MAX: Final = 1_000
"""how long that may take. No request waits for it."""
AGE_MS_MAX: Final = 60_000
ADDRESSES_MAX: Final = 3
"""Of a name, that are tried."""
INTERIM_MAX: Final = 8
"""Answers before the answer (1xx)."""
_SECOND_MS: Final = 1_000


class PostFailed(Exception):
    """There is no answer; the text says why, and has nothing of the URL but the host."""

    def __init__(self, result: PostResult, text: str) -> None:
        """`result`: for metrics; `text`: for the log."""
        super().__init__(text)
        self.result = result


class Unanswered(PostFailed):
    """The connection was closed before the first byte of an answer."""


class Connection:
    """One of them."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, made_ms: float
    ) -> None:
        """It has just been made."""
        self._reader, self._writer, self.made_ms = reader, writer, made_ms
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self.is_used = False
        """An answer has come by it."""
        self._has_answered = False
        """At least a byte, since the last request."""
        self._rest_bytes = 0

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send it, and read the head of the answer.

        Raises:
            Unanswered: not a byte of an answer has come.
            PostFailed: what has come is none.
            OSError: the connection broke; ProtocolError of h11: it is not HTTP.
        """
        self._has_answered = False
        request = h11.Request(
            method="POST",
            target=target.path,
            headers=[
                ("host", target.authority),
                ("content-length", str(len(body))),
                *headers.items(),
            ],
        )
        events = (request, h11.Data(data=body), h11.EndOfMessage())
        try:
            self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
            await self._writer.drain()
        except ConnectionError:
            pass  # it may have answered before it had read all
        answer = await self._read_head()
        self.is_used = True
        return answer

    async def _read_head(self) -> Answer:
        interim = 0
        while True:
            event: Any = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._read())
            elif isinstance(event, h11.Response):
                found = dict(event.headers)
                return Answer(event.status_code, found.get(b"retry-after", b"").decode("latin-1"))
            elif isinstance(event, h11.InformationalResponse) and interim < INTERIM_MAX:
                interim += 1
            else:
                raise PostFailed(PostResult.NOT_HTTP, "there are only interim answers")

    async def _read(self) -> bytes:
        try:
            raw = await self._reader.read(HEAD_BYTES_MAX)
        except ConnectionError:
            raw = b""
        if not raw:
            kind = PostFailed if self._has_answered else Unanswered
            raise kind(PostResult.CLOSED, "the connection was closed before an answer")
        self._has_answered = True
        return raw

    def skim(self) -> bool | None:
        """Throw away what has come of a short rest of the answer.

        True: that was all, and another request may follow; False: none may; None: more has to come.
        """
        try:
            while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    return None
                if not isinstance(event, h11.Data):
                    return False
                self._rest_bytes += len(event.data)
                if self._rest_bytes > REST_BYTES_MAX:
                    return False
        except h11.ProtocolError:
            return False
        states = self._http.our_state, self._http.their_state
        if states != (h11.DONE, h11.DONE) or self._http.trailing_data != (b"", False):
            return False
        self._http.start_next_cycle()
        self._rest_bytes = 0
        return True

    async def finish(self) -> bool:
        """Read what `skim` waits for; whether another request may follow."""
        try:
            async with asyncio.timeout(REST_MS_MAX / _SECOND_MS):
                while (found := self.skim()) is None:
                    raw = await self._reader.read(HEAD_BYTES_MAX)
                    if not raw:
                        return False
                    self._http.receive_data(raw)
        except (OSError, TimeoutError):
            return False
        return found

    async def watch(self) -> None:
        """Return when something comes although nothing was asked, or its end."""
        try:
            await self._reader.read(1)
        except OSError:
            return

    def abort(self) -> None:
        """Close it: what is still on its way is dropped."""
        self._writer.transport.abort()


class Connections:
    """All that there are to one target. Belongs to one event loop."""

    def __init__(
        self,
        target: Target,
        tls: ssl.SSLContext | None,
        is_allowed: Callable[[str], bool],
        *,
        names: Names,
        keep_ms: int,
        kept_max: int,
    ) -> None:
        """There is none.

        Args:
            target: where to.
            tls: None: in the clear.
            is_allowed: whether an address may be connected to.
            names: where addresses come from; shared by all targets.
            keep_ms: how long one is kept that has nothing to do; 0: none is.
            kept_max: so many at one time.
        """
        self._target, self._tls, self._is_allowed = target, tls, is_allowed
        self._names = names
        self._keep_ms, self._kept_max = keep_ms, kept_max
        self._idle: deque[tuple[Connection, asyncio.Task[None]]] = deque()
        """With who looks after it."""
        self._keepers: dict[asyncio.Task[None], Connection] = {}
        self._is_closed = False
        self.dial_count = 0
        """Connections that were made, or tried."""

    async def take(self) -> Connection:
        """One that was kept, the latest first; else a new one. Raises as `dial`."""
        while self._idle:
            connection, keeper = self._idle.pop()
            if keeper.done():
                continue
            keeper.cancel()
            try:
                await asyncio.wait([keeper])
            except asyncio.CancelledError:
                connection.abort()
                raise
            if keeper.cancelled():
                return connection
        return await self.dial()

    async def dial(self) -> Connection:
        """A new one.

        Raises:
            PostFailed: no address that is allowed.
            OSError: the target is not there, or its certificate not good.
        """
        failure: OSError | None = None
        for address in (await self._addresses())[:ADDRESSES_MAX]:
            self.dial_count += 1
            try:
                reader, writer = await asyncio.open_connection(
                    address,
                    self._target.port,
                    limit=HEAD_BYTES_MAX,
                    ssl=self._tls,
                    server_hostname=self._target.host if self._tls is not None else None,
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
            else:
                return Connection(reader, writer, _now_ms())
        raise failure or PostFailed(PostResult.UNRESOLVED, f"{self._target.host} has no address")

    def give_back(self, connection: Connection) -> None:
        """Its answer's head is there: keep it, if that is worth it."""
        is_kept = self._keep_ms and not self._is_closed and len(self._keepers) < self._kept_max
        has_ended = connection.skim() if is_kept else False
        if has_ended is False:
            connection.abort()
            return
        keeper = asyncio.create_task(self._keep(connection, has_ended is None))
        self._keepers[keeper] = connection
        keeper.add_done_callback(self._keepers.pop)
        if has_ended:
            self._idle.append((connection, keeper))

    async def _keep(self, connection: Connection, has_rest: bool) -> None:  # noqa: FBT001
        """Until it is taken (then this is cancelled), or of no use any more."""
        keeper = errors.required(asyncio.current_task(), "a connection is kept by a task")
        entry = connection, keeper
        was_idle, is_taken = not has_rest, False
        try:
            if has_rest:
                if not await connection.finish():
                    return
                self._idle.append(entry)
                was_idle = True
            left_ms = min(self._keep_ms, connection.made_ms + AGE_MS_MAX - _now_ms())
            async with asyncio.timeout(max(0.0, left_ms) / _SECOND_MS):
                await connection.watch()
        except TimeoutError:
            return
        except asyncio.CancelledError:
            is_taken = was_idle and entry not in self._idle
            raise
        finally:
            if not is_taken:
                if entry in self._idle:
                    self._idle.remove(entry)
                connection.abort()

    async def close(self) -> None:
        """Close those that are kept."""
        self._is_closed = True
        keepers = list(self._keepers)
        for keeper, connection in self._keepers.items():
            keeper.cancel()
            connection.abort()  # a task that has not begun would not do it
        await asyncio.gather(*keepers, return_exceptions=True)
        self._idle.clear()

    async def _addresses(self) -> list[str]:
        """Those that may be connected to."""
        try:
            addresses = await self._names.addresses_of(self._target.host)
        except Unresolved as error:
            text = f"{self._target.host} cannot be resolved: {error}"
            raise PostFailed(PostResult.UNRESOLVED, text) from None
        allowed = [address for address in addresses if self._is_allowed(address)]
        if not allowed:
            raise PostFailed(
                PostResult.ADDRESS_REFUSED,
                f"{self._target.host} is {', '.join(addresses[:ADDRESSES_MAX])}: no address of the"
                " public internet (allow_private)",
            )
        return allowed


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * _SECOND_MS
