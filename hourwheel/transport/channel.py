"""The way to the nodes: gRPC calls with deadlines, whose failures are our own errors.

A shell. Which node to ask is decided in `hourwheel.transport.endpoints`, what to do after a failure
in `hourwheel.transport.retry`; what a failure was, in `hourwheel.transport.grpc_errors`.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Self
from weakref import WeakSet

import grpc
import grpc.aio

from hourwheel import errors
from hourwheel.clock import Clock, SystemClock
from hourwheel.transport.access import Access, Tls, Token
from hourwheel.transport.connect_errors import describe
from hourwheel.transport.connection import Connection, PublishStream, share
from hourwheel.transport.endpoints import Endpoints, Move, Servers, parse_servers
from hourwheel.transport.fork_guard import Home
from hourwheel.transport.grpc_errors import failure_of, make_error
from hourwheel.transport.methods import GET_STATUS, Method, Request, Response
from hourwheel.transport.retry import Backoff, CallRetries, Doubt, Pace, final_error, least_wait_ms
from hourwheel.transport.session_stream import CallFailed
from hourwheel.transport.stream import Stream, StreamBroken
from hourwheel.v1 import admin_pb2

__all__ = ["Channel", "Servers", "Stream", "StreamBroken", "failure_of", "make_error"]

SERVER_DEFAULT: Final = "127.0.0.1:7400"
CALL_TIMEOUT_MS: Final = 10_000.0
CONNECT_MS: Final = 1_000.0
"""How long to wait for a connection to one endpoint where there are others."""
RECONNECT_MS: Final = 300.0
"""The same for one that was gone when it was last asked. A node that is stopped takes connections,
by its kernel, and never greets; one that is slow to greet is connected when it is chosen again."""
ASK_MS: Final = 2_000.0
"""How long a list of the nodes may take; no call waits for it."""
CLOSE_GRACE_MS: Final = 60_000.0
"""How long what is under way to a node that has left the cluster may go on: longer than a poll."""


class Channel:
    """The way to the nodes of a cluster; several clients may share one.

    What it knows of the nodes is its own. Connections, and the session of each, are shared by all
    channels of an event loop to the same address with the same credentials. Belongs to the event
    loop that first uses it, and to its process: see `hourwheel.transport.fork_guard`.
    """

    def __init__(
        self,
        server: Servers = SERVER_DEFAULT,
        *,
        tls: Tls | bool | None = None,
        token: Token | None = None,
        user: tuple[str, str] | None = None,
        call_timeout_ms: float = CALL_TIMEOUT_MS,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Prepare; a connection is made when it is first needed.

        Args:
            server: host:port of a node; of several: "a:7400,b:7400" or a sequence. Name at least
                two of a cluster: the others are learned from the first that answers.
            tls: True, or `Tls` with the authority of the nodes' certificates, and with a
                certificate of the client's; without it the connections are in the clear.
            token: shows who calls; a function is asked before each call and stream, and gives what
                is valid then at once (it gets a new one in time, not when it is asked).
            user: (name, secret), which shows who calls, too.
            call_timeout_ms: how long a call is tried, unless it says otherwise.
            clock: for tests.
            backoff: waits between tries.

        Raises:
            InvalidArgument: `server` names no server, or a file of `tls` cannot be read.
            Unprotected: without TLS, a token or secret is sent to this machine only.
        """
        addresses = parse_servers(server)
        self.server = ",".join(addresses)
        self.endpoints = Endpoints(addresses)
        self.clock = clock or SystemClock()
        self.backoff = backoff or Backoff()
        self.random = random.SystemRandom().random  # no state that a fork would copy
        self.home = Home()
        self._access = Access.of(tls, token, user)
        for address in addresses:
            self._access.check(address)
        self._call_timeout_ms = call_timeout_ms
        self._connections: dict[str, Connection] = {}
        self._errands: set[asyncio.Task[None]] = set()
        """What goes on in the background: asking for nodes, closing connections."""
        self._streams: WeakSet[Stream[Any, Any]] = WeakSet()
        self._callers: set[asyncio.Task[Any]] = set()
        """Who waits for an answer or a connection."""
        self._dismissed: set[asyncio.Task[Any]] = set()
        """Those of them that closing interrupted."""
        self._is_closed = False
        self._is_new = True
        """No node was reached yet: what does not go together now never did."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the connections, unless they are a parent's; what is under way is cancelled."""
        self._is_closed = True
        if self.home.is_elsewhere:
            return
        errands = set(self._errands)
        for errand in errands:
            errand.cancel()
        if errands:
            await asyncio.wait(errands)
        for stream in list(self._streams):
            stream.cancel()
        for caller in self._callers - {asyncio.current_task()}:
            self._dismissed.add(caller)
            caller.cancel()
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.leave()

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout_ms: float | None = None,
        is_retried: bool = True,
        pace: Pace | None = None,
        is_urgent: bool = True,
        doubt: Doubt | None = None,
    ) -> Response:
        """Make one call, tried again where that is safe and may help.

        Args:
            method: which.
            request: what to send.
            timeout_ms: for all tries together; None: as the channel is set up.
            is_retried: False for a caller that has its own rules.
            pace: for such a caller: hears how the call ended, and so how long to wait.
            is_urgent: False: it may wait some milliseconds for others, to go with them.
            doubt: hears of each try that failed.

        Raises:
            HourwheelError: the node's own error, or `Unavailable`, `Timeout`; `Cancelled`, if the
                channel is closed meanwhile.
        """
        task = self._begin()
        try:
            return await self._call(
                method,
                request,
                timeout_ms=timeout_ms,
                is_retried=is_retried,
                pace=pace,
                is_urgent=is_urgent,
                doubt=doubt,
            )
        except asyncio.CancelledError:
            self._raise_if_dismissed(task)
            raise
        finally:
            self._callers.discard(task)

    async def try_once(
        self, use: Callable[[Connection], Coroutine[Any, Any, bool]], pace: Pace
    ) -> bool:
        """Use a connection to the node of choice for what may last, and gives what `use` gives.

        Args:
            use: raises `CallFailed` where the node, or the way to it, failed.
            pace: hears how it ended.

        Raises:
            HourwheelError: as `call`, after one try.
        """
        task = self._begin()
        try:
            connection = await self._reach(self._call_timeout_ms, pace)
            try:
                done = await use(connection)
            except CallFailed as failed:
                error = failed.failure.error
                move = self._on_failure(connection.address, error, 0.0)
                pace.on_failure(move, least_wait_ms(error))
                raise final_error(failed.failure, is_repeatable=True) from None
        except asyncio.CancelledError:
            self._raise_if_dismissed(task)
            raise
        else:
            pace.on_success()
            return done
        finally:
            self._callers.discard(task)

    def _begin(self) -> "asyncio.Task[Any]":
        """Somebody waits; must be discarded from `_callers`."""
        task = asyncio.current_task()
        if task is None:
            raise errors.Internal("a channel is used by tasks")
        self._callers.add(task)
        return task

    def _raise_if_dismissed(self, task: "asyncio.Task[Any]") -> None:
        if task in self._dismissed:
            self._dismissed.discard(task)
            if not task.uncancel():
                raise errors.Cancelled("the client was closed") from None

    async def _call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout_ms: float | None,
        is_retried: bool,
        pace: Pace | None,
        is_urgent: bool,
        doubt: Doubt | None,
    ) -> Response:
        retries = CallRetries(
            is_repeatable=method.is_repeatable,
            now_ms=self.clock.monotonic_ms(),
            timeout_ms=self._call_timeout_ms if timeout_ms is None else timeout_ms,
            backoff=self.backoff,
            random=self.random,
        )
        connect_ms = min(self._call_timeout_ms, retries.left_ms(self.clock.monotonic_ms()))
        while True:
            connection = await self._reach(connect_ms, pace)
            sent_ms = self.clock.monotonic_ms()
            try_ms = retries.try_ms(sent_ms, is_alone=self.endpoints.is_alone)
            try:
                answer = await connection.call(method, request, try_ms, is_urgent=is_urgent)
            except CallFailed as failed:
                failure = failed.failure
                if doubt is not None:
                    doubt.note(failure)
            else:
                if pace is not None:
                    pace.on_success()
                took_ms = 0.0 if method.is_waiting else self.clock.monotonic_ms() - sent_ms
                self.note_answer(connection.address, took_ms)
                self._learn(answer)
                return answer
            now_ms = self.clock.monotonic_ms()
            move = self._on_failure(connection.address, failure.error, now_ms - sent_ms)
            wait_ms = retries.find_wait_ms(now_ms, failure, move)
            if pace is not None:
                pace.on_failure(move, least_wait_ms(failure.error))
            if wait_ms is None or not is_retried:
                raise final_error(failure, is_repeatable=method.is_repeatable)
            await asyncio.sleep(wait_ms / 1_000)
            connect_ms = retries.left_ms(self.clock.monotonic_ms())

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the node of choice; asking begins to make one."""
        return self._choose().is_ready

    @property
    def unreached(self) -> str:
        """Where there is no connection: says so, and why as far as that is known."""
        return describe(self.server, [one.trouble for one in self._connections.values()])

    async def connect(self, timeout_ms: float | None = None) -> None:
        """Wait until there is a connection to the node of choice.

        What is sent without one may or may not have been sent when time runs out; so nothing is.

        Args:
            timeout_ms: how long to wait; None: for ever.

        Raises:
            Unavailable: there is still none; nothing was sent.
        """
        task = self._begin()
        try:
            await self._reach(timeout_ms, None)
        except asyncio.CancelledError:
            self._raise_if_dismissed(task)
            raise
        finally:
            self._callers.discard(task)

    def publish_stream(self, timeout_ms: float, *, is_bulk: bool) -> PublishStream:
        """Open a stream to publish by, or a lane of the session, to the node of choice.

        Args:
            timeout_ms: how long an answer may take, as far as somebody else waits for it.
            is_bulk: the batches are large.
        """
        connection = self._choose()
        on_failure = partial(self._on_failure, connection.address)
        stream = connection.publish_stream(on_failure, timeout_ms, is_bulk=is_bulk)
        self._streams.add(stream)
        return stream

    def new_pace(self) -> Pace:
        """For a caller that tries again by rules of its own."""
        return Pace(self.backoff, self.random)

    def note_answer(self, address: str, latency_ms: float) -> None:
        """The node at `address` did what it was asked, after `latency_ms`."""
        self.endpoints.on_answer(address, self.clock.monotonic_ms(), latency_ms)

    # --- endpoints ------------------------------------------------------------------------------

    def _on_failure(self, address: str, error: errors.HourwheelError, waited_ms: float) -> Move:
        return self.endpoints.on_failure(address, self.clock.monotonic_ms(), error, waited_ms)

    def _choose(self) -> Connection:
        """The connection to the node of choice."""
        if self._is_closed:
            raise errors.Cancelled("the client is closed")
        self.home.enter()
        now_ms = self.clock.monotonic_ms()
        settled = self.endpoints.find_settled(now_ms)
        address = self.endpoints.choose(now_ms, self.random()) if settled is None else settled
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = share(
                address, self._access, is_watched=not self.endpoints.is_alone
            )
        return connection

    async def _reach(self, timeout_ms: float | None, pace: Pace | None) -> Connection:
        """A connection that stands, to whichever endpoint is best.

        Raises:
            Unavailable: there was none within `timeout_ms`; nothing was sent.
            TlsFailed: no node was ever reached, and each that is known fails for TLS.
        """
        start_ms = self.clock.monotonic_ms()
        own_pace = self.new_pace()
        while not (connection := self._choose()).is_ready:
            is_alone = self.endpoints.is_alone
            spent_ms = self.clock.monotonic_ms() - start_ms
            left_ms = None if timeout_ms is None else max(0.0, timeout_ms - spent_ms)
            if not is_alone:
                is_doubtful = self.endpoints.is_doubtful(connection.address)
                most_ms = RECONNECT_MS if is_doubtful else CONNECT_MS
                left_ms = most_ms if left_ms is None else min(most_ms, left_ms)
            if await connection.wait_until_ready(
                left_ms, is_patient=is_alone, ends_without_tls=self._is_new
            ):
                break
            self._check_tls()
            lost = errors.Unavailable(f"no connection to {connection.address}")
            move = self._on_failure(connection.address, lost, 0.0)
            wait_ms = own_pace.on_failure(move)
            spent_ms = self.clock.monotonic_ms() - start_ms
            if timeout_ms is not None and spent_ms + wait_ms >= timeout_ms:
                if pace is not None:
                    pace.on_failure(move)
                await connection.find_trouble()
                raise errors.Unavailable(self.unreached)
            await asyncio.sleep(wait_ms / 1_000)
        self._is_new = False
        if self.endpoints.is_ask_due(self.clock.monotonic_ms()):
            self._run_errand(self._ask(connection))
        return connection

    def _check_tls(self) -> None:
        """Raises TlsFailed: see `_reach`. A node that was reached may be right again soon."""
        known = map(self._connections.get, self.endpoints.addresses)
        causes = ["" if one is None else one.tls_cause for one in known]
        if self._is_new and all(causes):
            raise errors.TlsFailed(self.unreached, cause=causes[0])

    # --- the list of nodes ----------------------------------------------------------------------

    async def _ask(self, connection: Connection) -> None:
        """Ask a node for all nodes. No call waits for it; it is repeated after trouble."""
        try:
            answer = await connection.unary(GET_STATUS)(
                admin_pb2.GetStatusRequest(), timeout=ASK_MS / 1_000
            )
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, errors.Unauthenticated):
            return
        self._learn(answer)

    def _learn(self, answer: object) -> None:
        """Take the list of nodes from an answer that has one; of the first shard, the master."""
        if not isinstance(answer, admin_pb2.GetStatusResponse) or not answer.shards:
            return
        shard = min(answer.shards, key=lambda one: one.shard)
        addresses = {node.node_id: node.address for node in answer.nodes}
        master = addresses.get(shard.master, "")
        self.endpoints.on_nodes(addresses.values(), master, shard.epoch)
        for address in self._connections.keys() - set(self.endpoints.addresses):
            self._run_errand(self._drop(self._connections.pop(address)))

    async def _drop(self, connection: Connection) -> None:
        gone = errors.Unavailable("the node is none of the cluster's any more")
        await connection.leave(CLOSE_GRACE_MS, gone)

    def _run_errand(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(errand, name="hourwheel-channel")
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
