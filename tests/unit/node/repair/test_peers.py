"""Whom to ask for what is lost, in which order, and what is believed of the answers."""

import asyncio
from typing import Any

import grpc
import pytest

from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.replication_pb2 import (
    FetchedMessage,
    FetchLogRequest,
    FetchLogResponse,
    FetchMessagesRequest,
    FetchMessagesResponse,
)
from node.repair.peers import Peers
from node.shard.message_lookup import Wanted
from storage.files.file_header import Identity

IDENTITY = Identity(bytes(range(16)), 3)


def wanted(sequence: int) -> Wanted:
    raw = b"%d" % sequence
    return Wanted(5, sequence, 256, sequence, int(crc32c(raw)), 0, len(raw))


class Calls:
    """Nodes that have some sequences, and a log each; None: it does not answer."""

    def __init__(self, has: dict[str, set[int] | None]) -> None:
        self.has = has
        self.logs: dict[str, bytes] = {}
        self.asked: list[tuple[str, list[int]]] = []
        self.lies = False

    async def fetch_messages(
        self, node: str, request: FetchMessagesRequest
    ) -> FetchMessagesResponse:
        assert (request.cluster_id, request.shard) == IDENTITY
        sequences = [one.sequence for one in request.messages]
        self.asked.append((node, sequences))
        has = self.has[node]
        if has is None:
            raise grpc.RpcError("away")
        return FetchMessagesResponse(
            messages=[
                FetchedMessage(ordinal=at, blob=b"lie" if self.lies else b"%d" % sequence)
                for at, sequence in enumerate(sequences)
                if sequence in has
            ]
            + [FetchedMessage(ordinal=99, blob=b"of nothing")]
        )

    async def fetch_log(self, node: str, request: FetchLogRequest) -> FetchLogResponse:
        assert (request.offset, request.bytes_max) == (700, 64)
        self.asked.append((node, []))
        return FetchLogResponse(batches=self.logs.get(node, b""))


def peers_of(calls: Any, **limits: float) -> Peers:
    return Peers(calls, IDENTITY, lambda: ["n1", "n2", "n3"], **limits)


async def test_next_is_asked_for_what_the_others_do_not_have() -> None:
    calls = Calls({"n1": {1, 3}, "n2": None, "n3": {1, 2}})
    found = await peers_of(calls).fetch_messages([wanted(n) for n in (1, 2, 3, 4)])
    assert found == {0: b"1", 1: b"2", 2: b"3"}
    assert calls.asked == [("n1", [1, 2, 3, 4]), ("n2", [2, 4]), ("n3", [2, 4])]


async def test_nobody_else_is_asked_when_all_is_found() -> None:
    calls = Calls({"n1": {1}})
    assert await peers_of(calls).fetch_messages([wanted(1)]) == {0: b"1"}
    assert len(calls.asked) == 1


async def test_what_is_not_right_is_not_believed() -> None:
    calls = Calls({"n1": {1}, "n2": {1}, "n3": {1}})
    calls.lies = True
    assert await peers_of(calls).fetch_messages([wanted(1)]) == {}


async def test_peer_that_does_not_answer_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls({"n1": {1}, "n2": {1}, "n3": set()})
    answer = calls.fetch_messages

    async def silent(node: str, request: FetchMessagesRequest) -> FetchMessagesResponse:
        if node == "n1":
            await asyncio.Event().wait()
        return await answer(node, request)

    calls.fetch_messages = silent  # type: ignore[method-assign]
    assert await peers_of(calls, answer_s=0.001).fetch_messages([wanted(1)]) == {0: b"1"}


async def test_log_is_taken_from_the_first_whose_piece_is_right() -> None:
    calls = Calls({})
    calls.logs = {"n2": b"wrong", "n3": b"right"}
    peers = peers_of(calls)
    assert await peers.fetch_log(700, 64, lambda raw: raw == b"right") == b"right"
    assert [node for node, _ in calls.asked] == ["n1", "n2", "n3"]
    assert await peers.fetch_log(700, 64, lambda _: False) is None
