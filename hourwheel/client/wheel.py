"""How many messages are due when."""

from collections.abc import Sequence
from dataclasses import dataclass

from hourwheel.errors import InvalidArgument
from hourwheel.limits import WHEEL_BOUND_COUNT_MAX
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import DESCRIBE_WHEEL
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class DueRange:
    """Messages that are due in one range of time."""

    from_ms: int
    """Due at or after this instant, in milliseconds since the Unix epoch."""
    to_ms: int
    """Due before this instant."""
    count: int
    """Pending messages, with those that would be, had they not been cancelled."""
    is_estimate: bool
    """A bound lies inside a second, or inside an hour that is days away: see `describe_wheel`."""


@dataclass(frozen=True, slots=True)
class WheelDescription:
    """What is pending, by due time."""

    clock_ms: int
    """The cluster's clock when this was counted."""
    ranges: tuple[DueRange, ...]
    """One between each two bounds."""
    earlier_count: int
    """Due before the first bound."""
    later_count: int
    """Due at the last bound or later."""
    pending_count: int
    """All that are neither released nor cancelled."""
    cancelled_count: int
    """Cancelled ones that are among the counts above, in all: they stay until they would be due."""


async def describe_wheel(channel: Channel, bounds_ms: Sequence[int]) -> WheelDescription:
    """See `AsyncAdmin.describe_wheel`."""
    bounds = list(bounds_ms)
    if not 2 <= len(bounds) <= WHEEL_BOUND_COUNT_MAX:  # noqa: PLR2004 - a range has two
        raise InvalidArgument(
            f"ranges have 2 to {WHEEL_BOUND_COUNT_MAX} bounds together, not {len(bounds)}"
        )
    for bound in bounds:
        if type(bound) is not int or not 0 <= bound <= DUE_MS_MAX:
            raise InvalidArgument(
                f"a bound is an instant in milliseconds since 1970, not {bound!r}"
            )
    answer = await channel.call(DESCRIBE_WHEEL, admin_pb2.DescribeWheelRequest(bounds_ms=bounds))
    ranges = map(DueRange, bounds[:-1], bounds[1:], answer.counts, answer.are_estimates)
    return WheelDescription(
        answer.clock_ms,
        tuple(ranges),
        answer.earlier_count,
        answer.later_count,
        answer.pending_count,
        answer.cancelled_count,
    )
