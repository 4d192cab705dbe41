"""A master's stream to a follower that breaks in all the ways that calls of grpc.aio do."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import ReplicateRequest
from tests.support.engine_world import within
from tests.support.eventually import until
from tests.support.member_world import MemberWorld


def rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details=details)


class Breaking:
    """A call that is over when it is first used, or at its second message."""

    def __init__(self, error: BaseException | None, call: Any = None) -> None:
        self._error, self._call = error, call

    async def write(self, request: ReplicateRequest) -> None:
        if self._call is not None and request.HasField("hello"):
            await self._call.write(request)
        elif self._error is not None:
            raise self._error

    async def read(self) -> Any:
        return grpc.aio.EOF if self._call is None else await self._call.read()

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()


def replace_first(member: Any, make: Callable[[Callable[[], Any]], Any]) -> list[str]:
    """Have `make` make the first stream to n2; it gets how to dial. Empty until that was."""
    dial: Callable[[str], Any] = member.dialer.replicate
    replaced: list[str] = []

    def dial_otherwise(node: str) -> Any:
        if node == "n2" and not replaced:
            replaced.append(node)
            return make(partial(dial, node))
        return dial(node)

    member.dialer.replicate = dial_otherwise
    return replaced


@pytest.mark.parametrize("at_second", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        asyncio.InvalidStateError("RPC already finished."),
        TimeoutError(),
        asyncio.CancelledError(),  # as of a call that was cancelled, and not its task
        rpc_error(grpc.StatusCode.UNAVAILABLE, "the connection was cut"),
        rpc_error(grpc.StatusCode.UNAUTHENTICATED, "the cluster's secret is wrong"),
    ],
)
async def test_stream_is_opened_again_when_it_breaks(
    tmp_path: Path, error: BaseException | None, *, at_second: bool
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = world["n1"]
        broken = replace_first(n1, lambda dial: Breaking(error, dial() if at_second else None))
        await world.elect("n1")
        await n1.publish(100_000)
        assert broken
        await world.agreed()
        assert world.control.in_sync == {"n1", "n2", "n3"}


class Hanging:
    """A call that takes what it gets, and hangs from its first, second or third message on."""

    def __init__(self, call: Any, kind: str) -> None:
        self._call, self._kind = call, kind
        self._has_hung = self._is_cancelled = False

    async def _hang(self) -> None:
        """As gRPC: until it is cancelled, and then the awaiting task hears the same."""
        self._has_hung = True
        await until(lambda: self._is_cancelled)
        raise asyncio.CancelledError

    async def write(self, request: ReplicateRequest) -> None:
        if self._has_hung or request.HasField(self._kind):  # type: ignore[arg-type]
            await self._hang()
        await self._call.write(request)

    async def read(self) -> Any:
        return await (self._hang() if self._has_hung else self._call.read())

    def cancel(self) -> None:
        self._is_cancelled = True
        self._call.cancel()


@pytest.mark.parametrize("kind", ["hello", "begin", "beat"])
async def test_stream_is_opened_again_when_it_hangs(
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("node.cluster.replication_stream.ANSWER_S", 0.2)
    monkeypatch.setattr("node.cluster.replication_stream.SILENCE_S", 0.2)
    async with MemberWorld(tmp_path) as world:
        n1 = world["n1"]
        hanging = replace_first(n1, lambda dial: Hanging(dial(), kind))
        await world.elect("n1")
        await n1.publish(100_000)
        assert hanging
        await world.agreed()
        assert world.control.in_sync == {"n1", "n2", "n3"}


async def test_log_says_once_that_a_follower_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("node.cluster.replication_stream.AWAY_S", 0.2)
    async with MemberWorld(tmp_path) as world:
        await world["n3"].cut()
        dial: Callable[[str], Any] = world["n1"].dialer.replicate
        tries: list[str] = []

        def dial_and_note(node: str) -> Any:
            tries.append(node)
            return dial(node)

        world["n1"].dialer.replicate = dial_and_note  # type: ignore[method-assign]
        await world.elect("n1")

        def said() -> list[Any]:
            found = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
            return [one for one in found if one.get("event") == "follower_away"]

        await until(lambda: bool(said()))
        failures = said()[0]["failures"]
        tries.clear()
        await until(lambda: tries.count("n3") == 3)
        assert [(one["follower"], one["failures"]) for one in said()] == [("n3", failures)]
        assert "failed to connect" in said()[0]["reason"]


async def test_follower_that_is_not_there_need_not_be_waited_for(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        await world["n3"].cut()
        n1 = await world.elect("n1")  # time stands still: nothing is waited for
        await until(lambda: world.control.in_sync == {"n1", "n2"})
        await n1.publish(100_000)
        await world["n3"].listen()
        await until(lambda: world.control.in_sync == {"n1", "n2", "n3"})
        await world.agreed()


async def test_master_has_its_log_repaired_when_it_cannot_read_it_for_a_follower(
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(100_000)
        right: Callable[[str], Any] = n1.replica.find_part
        damage = errors.CorruptLog("bytes fail their checksum", file="log", offset=0)
        told: list[errors.DataLoss] = []

        def find_part(node: str) -> Any:
            if node == "n2" and not told:
                raise damage
            return right(node)

        n1.member.on_log_damage = told.append
        n1.replica.find_part = find_part
        await n1.publish(200_000)
        await until(lambda: bool(told))
        assert told == [damage]
        await world.agreed()
        assert not n1.failure.found.done()


async def test_process_ends_when_an_answer_meets_a_bug(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        world.expected.add("n1")
        n1 = await world.elect("n1")
        n1.replica.on_ack = lambda *_: 1 // 0
        failed = await within(asyncio.shield(n1.failure.found))
        assert isinstance(failed, errors.Internal)


async def test_last_word_releases_the_promise_and_leaves_the_leases(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(0, 0, 0)
        delivery = await n1.receive(wait_ms=60_000)
        assert delivery is not None
        await world.agreed()
        n2 = await world.elect("n2")  # time stands still
        again = await n2.receive(wait_ms=0)
        leased = len(delivery.units)
        assert (0 if again is None else len(again.units)) == 3 - leased
