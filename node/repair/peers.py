"""Ask other replicas for what this one cannot read. The client's side of node/repair/peer_reads.py.

One replica after the other, those in sync first. Each answer is verified, and the next replica gets
the request for what is missing. Where none answers, the caller tries again later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import grpc

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import (
    FetchLogRequest,
    FetchLogResponse,
    FetchMessagesRequest,
    FetchMessagesResponse,
)
from hourwheel.types import NodeId, Offset
from node.repair.peer_reads import BYTES_MAX, MESSAGES_MAX
from node.shard.message_lookup import Wanted
from node.telemetry import logs
from storage.files.file_header import Identity

_ANSWER_S: Final = 5.0
Request = TypeVar("Request")
Response = TypeVar("Response")
_log = logs.get(__name__)


class PeerCalls(Protocol):
    """What is needed of node.cluster.data_plane.Dialer."""

    def fetch_messages(
        self, node: NodeId, request: FetchMessagesRequest
    ) -> Awaitable[FetchMessagesResponse]:
        """Begin a FetchMessages call: an awaitable of FetchMessagesResponse."""
        ...

    def fetch_log(self, node: NodeId, request: FetchLogRequest) -> Awaitable[FetchLogResponse]:
        """Begin a FetchLog call: an awaitable of FetchLogResponse."""
        ...


class Peers:
    """See the top of this file."""

    def __init__(
        self,
        calls: PeerCalls,
        identity: Identity,
        order: Callable[[], Sequence[NodeId]],
        *,
        answer_s: float = _ANSWER_S,
    ) -> None:
        """`order`: the other nodes, the best first; `answer_s`: how long to wait for each."""
        self._answer_s = answer_s
        self._calls, self._identity, self._order = calls, identity, order

    async def fetch_messages(self, wanted: Sequence[Wanted]) -> dict[int, bytes]:
        """Right bytes of some of these: by ordinal. At most what one answer of each peer holds."""
        found: dict[int, bytes] = {}
        for node in self._order():
            missing = [one for one in range(len(wanted)) if one not in found][:MESSAGES_MAX]
            if not missing or sum(map(len, found.values())) >= BYTES_MAX:
                break
            request = FetchMessagesRequest(
                cluster_id=self._identity.cluster_id,
                shard=self._identity.shard,
                messages=[wanted[one].to_wire() for one in missing],
            )
            answer = await self._ask(node, self._calls.fetch_messages, request)
            if answer is None:
                continue
            for one in answer.messages:
                if one.ordinal < len(missing) and wanted[missing[one.ordinal]].is_right(one.blob):
                    found[missing[one.ordinal]] = one.blob
        return found

    async def fetch_log(
        self, offset: Offset, bytes_max: int, is_right: Callable[[bytes], bool]
    ) -> bytes | None:
        """The batches from an offset on that the first peer has for which `is_right` holds."""
        request = FetchLogRequest(
            cluster_id=self._identity.cluster_id,
            shard=self._identity.shard,
            offset=offset,
            bytes_max=bytes_max,
        )
        for node in self._order():
            answer = await self._ask(node, self._calls.fetch_log, request)
            if answer is not None and answer.batches:
                if is_right(answer.batches):
                    return answer.batches
                _log.error("peer_bytes_rejected", peer=node, offset=offset)
        return None

    async def _ask(
        self, node: NodeId, call: Callable[[NodeId, Request], Awaitable[Response]], request: Request
    ) -> Response | None:
        """The answer, or None where there is none."""
        try:
            async with asyncio.timeout(self._answer_s):
                return await call(node, request)
        except (grpc.RpcError, TimeoutError, errors.HourwheelError) as error:
            _log.debug("peer_unreachable", peer=node, reason=str(error))
            return None
