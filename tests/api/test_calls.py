"""What surrounds each call: metrics, logs and the end of the process."""

import gc
import tracemalloc
from contextlib import suppress
from typing import Any, cast

import pytest

from hourwheel import errors
from hourwheel.clock import SystemClock
from node.access.control import AccessControl
from node.api.admission import Admission
from node.api.calls import Calls, Context
from node.config.model import NodeConfig
from node.telemetry.failure import Failure
from node.telemetry.stats import ApiStats
from tests.support.api_world import ApiWorld, refused


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What our own code has logged."""
    return [record.msg for record in caplog.records if isinstance(record.msg, dict)]


async def test_calls_are_counted_by_method_and_code() -> None:
    async with ApiWorld() as world:
        await world.publish(b"x")
        await world.publish(b"y")
        await refused(world.publish(b"z", topic=""))
        publish = world.stats.method("Publish")
    assert publish.handled == {"OK": 2, "INVALID_ARGUMENT": 1}
    assert publish.seconds.count == 3
    assert world.stats.rejected == {"INVALID_TOPIC": 1}
    assert (world.stats.requests_in_flight, world.stats.bytes_in_flight) == (0, 0)


async def test_call_tells_nothing_of_the_node_when_it_fails_by_a_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ApiWorld() as world:
        world.engine.errors["publish_messages"] = RuntimeError("a secret of the node's")
        refusal = await refused(world.publish(b"x"))
        assert not world.failure.found.done()
    assert (refusal.code.name, refusal.reason) == ("INTERNAL", "INTERNAL")
    assert "secret" not in refusal.message
    (line,) = lines(caplog)
    assert (line["event"], line["method"]) == ("call_failed", "Publish")
    assert isinstance(line["exc_info"], RuntimeError)


@pytest.mark.parametrize("kind", [errors.InvariantViolated, errors.FsyncFailed, errors.DiskFailed])
async def test_call_ends_the_process_when_the_node_cannot_be_trusted(
    kind: type[errors.HourwheelError],
) -> None:
    async with ApiWorld() as world:
        world.engine.errors["publish_messages"] = kind("broken")
        refusal = await refused(world.publish(b"x"))
        assert isinstance(world.failure.found.result(), kind)
    is_local = kind is not errors.InvariantViolated
    assert refusal.reason == ("TIMEOUT" if is_local else kind.reason)


async def test_call_may_be_tried_again_when_the_node_ends_over_damaged_bytes() -> None:
    async with ApiWorld() as world:
        world.engine.errors["publish_messages"] = error = errors.CorruptFile("bad", file="a.cq")
        world.failure.report(error)
        refusal = await refused(world.publish(b"x"))
    assert refusal.reason == "TIMEOUT"
    assert "a.cq" not in refusal.message


async def test_call_goes_on_when_stored_bytes_are_damaged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ApiWorld() as world:
        world.engine.errors["publish_messages"] = errors.CorruptLog("bad", file="a.log", offset=9)
        refusal = await refused(world.publish(b"x"))
        assert not world.failure.found.done()
    assert (refusal.reason, refusal.params) == ("CORRUPT_LOG", {"file": "a.log", "offset": "9"})
    (line,) = lines(caplog)
    assert (line["file"], line["offset"]) == ("a.log", "9")


class Ended(Exception):
    """A call ends so."""


class Caller:
    """A call that nobody made."""

    async def abort_with_status(self, status: object) -> None:
        raise Ended

    def peer(self) -> str:
        return "nobody"


async def test_call_keeps_no_request_in_memory_when_it_was_refused() -> None:
    """An error's traceback leads to the handler's frame: that must not lead back to the error."""

    async def refuse(request: bytes, _: object) -> Any:
        raise errors.InvalidTopic(f"{len(request)} bytes")

    config, stats = NodeConfig.of({}), ApiStats()
    calls = Calls(Admission(config.limits, stats), SystemClock(), Failure(), AccessControl())
    handle = calls.unary("Publish", bytes, refuse)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(4):
            with suppress(Ended):
                await handle(bytes(4 << 20), cast(Context, Caller()))
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()
        gc.enable()
    assert stats.rejected == {"INVALID_TOPIC": 4}
