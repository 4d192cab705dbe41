"""`hourwheel wheel`: how many messages are due when."""

from typing import Annotated, Any, Final

import typer

from hourwheel.cli.options import Json, Server, duration_option, run_with_admin, when_option
from hourwheel.cli.output import Output, format_duration, format_instant
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.wheel import DueRange, WheelDescription
from hourwheel.due_time import When
from hourwheel.limits import WHEEL_BOUND_COUNT_MAX
from hourwheel.transport.channel import SERVER_DEFAULT

_SECOND_MS: Final = 1_000
_DELAYS_S: Final = (
    *(0, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400, 90 * 86_400, 365 * 86_400),
)
"""Default bounds: fine where it is near."""
_BAR: Final = 40
"""So many characters are the longest bar."""


def wheel(
    every: Annotated[
        int | None,
        typer.Option(
            parser=duration_option,
            metavar="DURATION",
            help="Ranges of this length; by default they grow, from a minute to a year.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, max=WHEEL_BOUND_COUNT_MAX - 1, help="So many of them.")
    ] = 24,
    from_: Annotated[
        When | None,
        typer.Option(
            "--from", parser=when_option, metavar="WHEN", help="Where they begin: 2h, an instant."
        ),
    ] = None,
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show how many messages are due when, of all topics together."""
    if every is not None and every < _SECOND_MS:
        raise typer.BadParameter("a range is a second long, or longer")
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        bounds = await _bounds(admin, from_, every, count)
        found = await admin.describe_wheel(bounds)
        if is_json:
            output.json(_facts(found))
        else:
            _show(output, found)

    run_with_admin(output, server, command)


async def _bounds(
    admin: AsyncAdmin, from_: When | None, every_ms: int | None, count: int
) -> list[int]:
    """Whole seconds, which are counted exactly where they are near."""
    begin_ms = from_.due_ms if from_ is not None else None
    if begin_ms is None:  # delays are counted from the cluster's clock
        clock_ms = max((node.clock_ms for node in (await admin.status()).nodes), default=0)
        begin_ms = clock_ms + (0 if from_ is None else from_.delay_ms or 0)
    begin_ms -= begin_ms % _SECOND_MS
    if every_ms is None:
        return [begin_ms + delay_s * _SECOND_MS for delay_s in _DELAYS_S]
    return [begin_ms + ordinal * every_ms for ordinal in range(count + 1)]


def _facts(found: WheelDescription) -> dict[str, Any]:
    """The wheel for scripts."""
    return {
        "clock_ms": found.clock_ms,
        "pending_count": found.pending_count,
        "cancelled_count": found.cancelled_count,
        "earlier_count": found.earlier_count,
        "ranges": [
            {
                "from_ms": one.from_ms,
                "to_ms": one.to_ms,
                "count": one.count,
                "is_estimate": one.is_estimate,
            }
            for one in found.ranges
        ],
        "later_count": found.later_count,
    }


def _show(output: Output, found: WheelDescription) -> None:
    """The wheel for people: a bar for each range."""
    most = max(1, found.earlier_count, found.later_count, *(one.count for one in found.ranges))
    first, last = found.ranges[0].from_ms, found.ranges[-1].to_ms

    def row(when: str, count: int, *, is_estimate: bool = False) -> dict[str, Any]:
        bar = "#" * -(-count * _BAR // most)
        return {"due": when, "messages": f"{'~' if is_estimate else ''}{count:,}", "": bar}

    rows = [
        row(f"before {format_instant(first)}", found.earlier_count),
        *(
            row(_when(one, found.clock_ms), one.count, is_estimate=one.is_estimate)
            for one in found.ranges
        ),
        row(f"from {format_instant(last)} on", found.later_count),
    ]
    output.rows("pending messages by due time", rows, ("due", "messages", ""))
    output.line(f"{found.pending_count:,} are pending")
    if found.cancelled_count:
        output.line(
            f"{found.cancelled_count:,} of those above are cancelled: they stay until they are due"
        )
    if any(one.is_estimate for one in found.ranges):
        output.line("~ an estimate: it begins or ends inside an hour that is counted as a whole")


def _when(one: DueRange, clock_ms: int) -> str:
    """A range, by its end: as an instant, and as a delay from now."""
    ahead_ms = one.to_ms - clock_ms
    delay = f" (in {format_duration(ahead_ms)})" if ahead_ms > 0 else ""
    return f"before {format_instant(one.to_ms)}{delay}"
