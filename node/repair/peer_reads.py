"""What a replica reads for its peers: messages and pieces of the log that they have lost.

FetchMessages asks by what a message is; FetchLog, by an offset below what is applied here. Both
answer in slices of the loop's time, one call at a time: consumers come first. The node
verifies what it reads, and the peer verifies it again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc

from hourwheel import errors
from hourwheel.internal.v1 import replication_pb2
from hourwheel.internal.v1.replication_pb2 import (
    FetchedMessage,
    FetchLogRequest,
    FetchLogResponse,
    FetchMessagesRequest,
    FetchMessagesResponse,
)
from hourwheel.transport import grpc_status
from hourwheel.types import Offset
from node.shard.message_lookup import MessageLookup, Wanted
from node.shard.shard import Shard
from storage.files.file_header import Identity

MESSAGES_MAX: Final = 64
"""Of one call."""
BYTES_MAX: Final = 4 << 20
"""Of one answer; a message that is larger comes alone."""
LOG_BYTES_MAX: Final = 1 << 20
"""About so much of the log in one answer; one batch in any case."""
WAITING_MAX: Final = 8
_METHODS: Final = replication_pb2.DESCRIPTOR.services_by_name["ReplicationService"].methods_by_name

Request = TypeVar("Request", FetchMessagesRequest, FetchLogRequest)
Response = TypeVar("Response")


class PeerReads:
    """See the top of this file. On the event loop's thread."""

    def __init__(self, shard: Shard, identity: Identity) -> None:
        """Read from a shard."""
        self._shard, self._identity = shard, identity
        self._lookup = MessageLookup(shard.views, shard.log, shard.bodies)
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def fetch_messages(self, request: FetchMessagesRequest) -> FetchMessagesResponse:
        """The handler of FetchMessages.

        Raises:
            PeerRefused: of another cluster or shard. InvalidArgument: too many. Overloaded.
        """
        self._check(request)
        if len(request.messages) > MESSAGES_MAX:
            raise errors.InvalidArgument(f"at most {MESSAGES_MAX} messages at a time")
        response, size = FetchMessagesResponse(), 0
        for ordinal, one in enumerate(request.messages):
            wanted = Wanted.from_wire(one)
            if size and size + wanted.size_bytes > BYTES_MAX:
                break
            raw = self._lookup.find(wanted)
            if raw is not None:
                response.messages.append(FetchedMessage(ordinal=ordinal, blob=raw))
                size += len(raw)
            await asyncio.sleep(0)
        return response

    async def fetch_log(self, request: FetchLogRequest) -> FetchLogResponse:
        """The handler of FetchLog. Raises as `fetch_messages`."""
        self._check(request)
        shard, start = self._shard, Offset(request.offset)
        if not shard.log.start_offset <= start < shard.views.applied_offset:
            return FetchLogResponse()
        parts, size = list[bytes](), 0
        try:
            for batch in shard.log.scan(start, shard.views.applied_offset):
                parts.append(b"".join((batch.head, batch.payload)))
                size += batch.header.total_bytes
                if size >= min(request.bytes_max, LOG_BYTES_MAX):
                    break
        except (errors.CorruptLog, errors.DiskFailed, FileNotFoundError):
            pass  # what comes before the damage is as good as ever
        return FetchLogResponse(batches=b"".join(parts))

    def _check(self, request: FetchMessagesRequest | FetchLogRequest) -> None:
        identity = self._identity
        if request.cluster_id != identity.cluster_id or request.shard != identity.shard:
            raise errors.PeerRefused("asked for another cluster or shard")

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """By the methods' names, for a generic handler of the service."""
        return {
            _METHODS["FetchMessages"].name: grpc.unary_unary_rpc_method_handler(
                self._guarded(self.fetch_messages),
                request_deserializer=FetchMessagesRequest.FromString,
                response_serializer=FetchMessagesResponse.SerializeToString,
            ),
            _METHODS["FetchLog"].name: grpc.unary_unary_rpc_method_handler(
                self._guarded(self.fetch_log),
                request_deserializer=FetchLogRequest.FromString,
                response_serializer=FetchLogResponse.SerializeToString,
            ),
        }

    def _guarded(
        self, handle: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request, Any], Awaitable[Response]]:
        """One call at a time, and errors as gRPC tells them."""

        async def call(request: Request, context: Any) -> Response:
            try:
                return await self._in_turn(handle, request)
            except errors.HourwheelError as error:
                refusal = grpc_status.to_status(error)
            # Behind `except`: gRPC's error lies in a circle, and would keep this one's frames.
            await context.abort_with_status(refusal)
            raise errors.Internal("an aborted call goes on")

        return call

    async def _in_turn(
        self, handle: Callable[[Request], Awaitable[Response]], request: Request
    ) -> Response:
        if self._waiting >= WAITING_MAX:
            raise errors.Overloaded("too many peers ask for what they have lost")
        self._waiting += 1
        try:
            async with self._turn:
                return await handle(request)
        finally:
            self._waiting -= 1
