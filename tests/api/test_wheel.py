"""DescribeWheel as a client of any language sees it."""

from hourwheel import errors
from hourwheel.v1 import admin_pb2
from tests.support.api_world import ApiWorld, refused
from tests.support.fake_engine import NOW_MS


async def test_describe_when_answered() -> None:
    async with ApiWorld() as world:
        request = admin_pb2.DescribeWheelRequest(bounds_ms=[5, 6, 9])
        assert await world.admin.DescribeWheel(request) == admin_pb2.DescribeWheelResponse(
            counts=[1, 2],
            are_estimates=[True, False],
            earlier_count=7,
            later_count=8,
            pending_count=9,
            cancelled_count=10,
            clock_ms=NOW_MS,
        )
        assert world.engine.asked("describe_wheel") == [[5, 6, 9]]


async def test_describe_when_refused() -> None:
    async with ApiWorld() as world:
        world.engine.errors["describe_wheel"] = errors.Overloaded("too many")
        refusal = await refused(world.admin.DescribeWheel(admin_pb2.DescribeWheelRequest()))
        assert refusal.reason == errors.Overloaded.reason
