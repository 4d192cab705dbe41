"""`hourwheel reschedule`."""

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import (
    Json,
    Keys,
    KeysTopic,
    MessageIds,
    NewTime,
    Server,
    chosen_ids,
    connect,
)
from hourwheel.cli.output import Output, format_instant, run
from hourwheel.client.changes.rescheduling import NewTimes, reschedule_keys, reschedule_many
from hourwheel.outcomes import RescheduleOutcome
from hourwheel.transport.channel import SERVER_DEFAULT


def reschedule(
    message_ids: MessageIds = None,
    *,
    when: NewTime,
    topic: KeysTopic = "",
    keys: Keys = None,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Move messages that are not yet released to another due time; exit code 1 unless all were."""
    output = Output(is_json=is_json)
    ids = chosen_ids(message_ids, topic, keys)
    times = NewTimes(when.due_ms, when.delay_ms)
    if keys:
        run(output, _reschedule_keys(output, server, topic, keys, times))
        return
    run(output, _reschedule(output, server, ids, times))


async def _reschedule_keys(
    output: Output, server: str, topic: str, keys: list[str], times: NewTimes
) -> ExitCode:
    async with connect(server) as channel:
        found = await reschedule_keys(channel, topic, keys, times)
    rows = [
        {
            "key": key,
            "outcome": one.outcome.name,
            "rescheduled": one.rescheduled_count,
            "due": _shown(output, one.due_ms),
        }
        for key, one in zip(keys, found, strict=True)
    ]
    output.rows("rescheduled", rows, ("key", "outcome", "rescheduled", "due"))
    return _code([one.outcome for one in found])


async def _reschedule(
    output: Output, server: str, message_ids: list[str], times: NewTimes
) -> ExitCode:
    async with connect(server) as channel:
        found = await reschedule_many(channel, message_ids, times)
    rows = [
        {
            "message_id": message_id,
            "outcome": one.outcome.name,
            "due": _shown(output, one.due_ms),
        }
        for message_id, one in zip(message_ids, found, strict=True)
    ]
    output.rows("rescheduled", rows, ("message_id", "outcome", "due"))
    return _code([one.outcome for one in found])


def _shown(output: Output, due_ms: int | None) -> int | str | None:
    """For people an instant, for programs its number."""
    if output.is_json:
        return due_ms
    return "" if due_ms is None else format_instant(due_ms)


def _code(outcomes: list[RescheduleOutcome]) -> ExitCode:
    is_all = all(one is RescheduleOutcome.RESCHEDULED for one in outcomes)
    return ExitCode.OK if is_all else ExitCode.PARTLY
