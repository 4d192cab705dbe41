"""`hourwheel cancel`."""

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import Json, Keys, KeysTopic, MessageIds, Server, chosen_ids, connect
from hourwheel.cli.output import Output, run
from hourwheel.client.admin import AsyncAdmin
from hourwheel.outcomes import CancelOutcome
from hourwheel.transport.channel import SERVER_DEFAULT


def cancel(
    message_ids: MessageIds = None,
    *,
    topic: KeysTopic = "",
    keys: Keys = None,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Take messages back that are not yet released; exit code 1 unless that was all of them."""
    output = Output(is_json=is_json)
    ids = chosen_ids(message_ids, topic, keys)
    run(output, _cancel_keys(output, server, topic, keys) if keys else _cancel(output, server, ids))


async def _cancel_keys(output: Output, server: str, topic: str, keys: list[str]) -> ExitCode:
    async with connect(server) as channel:
        found = await AsyncAdmin(channel).cancel_by_keys(topic, keys)
    rows = [
        {"key": key, "outcome": one.outcome.name, "cancelled": one.cancelled_count}
        for key, one in zip(keys, found, strict=True)
    ]
    output.rows("cancelled", rows, ("key", "outcome", "cancelled"))
    is_all = all(one.outcome is CancelOutcome.CANCELLED for one in found)
    return ExitCode.OK if is_all else ExitCode.PARTLY


async def _cancel(output: Output, server: str, message_ids: list[str]) -> ExitCode:
    async with connect(server) as channel:
        outcomes = await AsyncAdmin(channel).cancel_many(message_ids)
    rows = [
        {"message_id": message_id, "outcome": outcome.name}
        for message_id, outcome in zip(message_ids, outcomes, strict=True)
    ]
    output.rows("cancelled", rows, ("message_id", "outcome"))
    is_all = all(outcome is CancelOutcome.CANCELLED for outcome in outcomes)
    return ExitCode.OK if is_all else ExitCode.PARTLY
