"""`hourwheel status`, `hourwheel transfer` and `hourwheel drain`."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from hourwheel.cli.access import current_access
from hourwheel.cli.options import CALL_TIMEOUT_MS, Json, Server, duration_option, run_with_admin
from hourwheel.cli.output import Output, format_duration, format_instant, run
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.cluster_status import (
    ClusterStatus,
    DeliveryStatus,
    FollowerStatus,
    NodeStatus,
    ShardStatus,
)
from hourwheel.client.node_probe import NodeProbe
from hourwheel.errors import HourwheelError, NotMaster
from hourwheel.transport.channel import SERVER_DEFAULT

_MASTER_MS: Final = 1_000.0
"""How long to wait for the master that another node reports."""
_NODE_COLUMNS: Final = (
    *("node", "address", "state", "in_sync", "epoch", "log_end", "version_(level)", "heard"),
)
_FOLLOWER_COLUMNS: Final = (
    *("follower", "phase", "acked_to", "lag", "applied_to", "heard", "clock"),
)
_KIB: Final = 1_024
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_UNKNOWN: Final = "-"
_NEARLY_ALL: Final = 0.99


def status(
    *,
    is_here: Annotated[
        bool,
        typer.Option(
            "--here", help="Show what the asked node itself knows; else the master answers."
        ),
    ] = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show nodes, master, replicas and their lag, wheel and log."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        found = await admin.status()
        if not is_here:
            found = await ask_master(found)
        if output.is_json:
            output.json(asdict(found))
        else:
            show(output, found)

    run_with_admin(output, server, command)


async def ask_master(found: ClusterStatus) -> ClusterStatus:
    """The master's own answer, where it is another node that answers; else `found`."""
    master = found.shards[0].master if found.shards else ""
    address = found.address_of(master)
    if not address or found.answered_by in {"", master}:
        return found
    probe = NodeProbe(address, current_access())
    try:
        return await probe.status(_MASTER_MS)
    except HourwheelError:
        return found  # its `answered_by` says that it is not the master
    finally:
        await probe.close()


def transfer(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="NODE",
            help="The next master; by default the control plane chooses one.",
        ),
    ] = "",
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Transfer mastership to another node in sync; clients go on without an error."""
    output = Output(is_json=is_json)

    async def command(admin: AsyncAdmin) -> None:
        done = await admin.transfer_master(to)
        if output.is_json:
            output.json(done._asdict())
        else:
            output.line(f"node {done.master} is the master, in epoch {done.epoch}")

    run_with_admin(output, server, command)


def drain(
    linger_ms: Annotated[
        int,
        typer.Option(
            "--linger",
            parser=duration_option,
            metavar="DURATION",
            help="Then wait for so long, until load balancers have stopped sending clients here.",
        ),
    ] = "0s",  # type: ignore[assignment]  # typer parses defaults, too
    *,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Prepare one node to be stopped: if it is the master, another node takes over.

    It serves on until it is stopped (SIGTERM), so clients notice nothing.
    """
    output = Output(is_json=is_json)
    if "," in server:
        raise typer.BadParameter("name the one node that is about to be stopped")

    async def command() -> None:
        probe = NodeProbe(server, current_access())
        try:
            master = await hand_over(probe)
        finally:
            await probe.close()
        await asyncio.sleep(linger_ms / 1_000)
        if output.is_json:
            output.json({"master": master})
        else:
            output.line(f"the master is {f'node {master}' if master else 'not known'}")

    run(output, command())


async def hand_over(probe: NodeProbe) -> str:
    """Let another node be master, where this one is and there are others; gives the master."""
    found = await probe.status(CALL_TIMEOUT_MS)
    master = found.shards[0].master if found.shards else ""
    if master != found.answered_by or len(found.nodes) == 1:
        return master
    try:
        return (await probe.transfer_master(CALL_TIMEOUT_MS)).master
    except NotMaster:  # it has just ceased to be
        return (await probe.status(CALL_TIMEOUT_MS)).shards[0].master


# --- tables -------------------------------------------------------------------------------------


def show(output: Output, found: ClusterStatus) -> None:
    """What a node says of its cluster."""
    facts: dict[str, Any] = {"cluster_id": found.cluster_id, "version": found.version}
    if found.control is not None:
        leader = found.control.leader_node_id or "none that is known"
        facts["answered_by"] = f"node {found.answered_by}"
        facts["majority"] = "yes" if found.control.has_majority else "NO: no master can be elected"
        facts["raft_leader"] = f"{leader} (term {found.control.term})"
        facts["members_generation"] = found.control.generation
    output.facts("cluster", facts)
    in_sync = {node for shard in found.shards for node in shard.in_sync}
    if found.control is not None:
        masters = {shard.master for shard in found.shards}
        rows = [_node_row(node, masters, in_sync) for node in found.nodes]
        output.rows("nodes", rows, _NODE_COLUMNS)
    for node in found.nodes:
        if node.started_ms:
            output.facts(f"node {node.node_id}", _own_facts(node))
    for shard in found.shards:
        if shard.followers:
            rows = [_follower_row(one) for one in shard.followers]
            output.rows(f"followers in shard {shard.shard}", rows, _FOLLOWER_COLUMNS)
        output.facts(f"shard {shard.shard}", _shard_facts(shard))


def state_of(node: NodeStatus) -> str:
    """How a node is, in a word or two."""
    if not node.is_heard:
        return "not heard of"
    if not node.is_alive:
        return "dead or cut off"
    return "ready" if node.is_ready else "not ready"


def _node_row(node: NodeStatus, masters: set[str], in_sync: set[str]) -> dict[str, Any]:
    return {
        "node": node.node_id,
        "address": node.address,
        "state": state_of(node) + (", master" if node.node_id in masters else ""),
        "in_sync": "yes" if node.node_id in in_sync else "no",
        "epoch": node.epoch,
        "log_end": node.log_end_offset,
        "version": f"{node.version or _UNKNOWN} ({node.feature_level or _UNKNOWN})",
        "heard": _ago(node.heard_ms_ago if node.is_heard else None),
    }


def _own_facts(node: NodeStatus) -> dict[str, Any]:
    return {
        "address": node.address,
        "started": format_instant(node.started_ms),
        "clock": format_instant(node.clock_ms),
        "boot_id": node.boot_id or _UNKNOWN,
        "accepts_messages": f"no: {node.read_only_reason}" if node.read_only_reason else "yes",
    }


def _follower_row(one: FollowerStatus) -> dict[str, Any]:
    clock_ms = one.clock_offset_ms
    return {
        "follower": one.node_id,
        "phase": f"{one.phase}, disk full" if one.is_full else str(one.phase),
        "acked_to": one.acked_end_offset,
        "lag": format_bytes_count(one.lag_bytes),
        "applied_to": one.applied_offset,
        "heard": _ago(one.heard_ms_ago),
        "clock": _UNKNOWN if clock_ms is None else f"{clock_ms:+.1f} ms",
    }


def _shard_facts(shard: ShardStatus) -> dict[str, Any]:
    facts = asdict(shard)
    for name in ("shard", "followers", "version", "role", "may_act", "lease_left_ms", "in_sync"):
        del facts[name]
    for name in ("append_cursor_ms", "append_cursor_sequence", "clock_offset_ms"):
        del facts[name]
    del facts["delivery"]
    if shard.delivery is not None:
        facts.update(_delivery_facts(shard.delivery))
    next_due_ms = facts.pop("next_due_ms")
    facts["master"] = shard.master or "NONE"
    facts["tick"] = format_instant(shard.tick * 1_000) if shard.tick else "none yet"
    facts["next_due"] = format_instant(next_due_ms) if next_due_ms else "none"
    if shard.in_sync:
        facts["in_sync"] = f"{', '.join(shard.in_sync)} (version {shard.version})"
    facts["role"] = str(shard.role)  # of the node that answered: it may lag behind the master
    facts["may_act"] = "yes" if shard.may_act else "no"
    if shard.lease_left_ms is not None:
        facts["lease_left"] = f"{shard.lease_left_ms} ms"
        facts["cluster_clock"] = f"{shard.clock_offset_ms:+.1f} ms to the master's"
    if shard.append_cursor_ms:
        cursor = format_instant(shard.append_cursor_ms)
        facts["append_cursor"] = f"{cursor} / {shard.append_cursor_sequence}"
    return facts


def _delivery_facts(delivery: DeliveryStatus) -> dict[str, Any]:
    """What the answering node has handed out since its process started."""
    return {
        "delivered_count": delivery.delivered_count,
        "of_them_again": delivery.redelivered_count,
        "acknowledged_count": delivery.acknowledged_count,
        "dead_lettered_count": delivery.dead_lettered_count,
        "released_early": delivery.early_count,
        "lateness": _lateness(delivery),
    }


def _lateness(delivery: DeliveryStatus) -> str:
    """Within what nearly all messages were released, as far as the histogram says."""
    left = sum(delivery.lateness_counts) * _NEARLY_ALL
    if not left:
        return "nothing released yet"
    for bound_ms, count in zip(delivery.lateness_bounds_ms, delivery.lateness_counts, strict=False):
        left -= count
        if left <= 0:
            return f"{_NEARLY_ALL:.0%} within {bound_ms:g} ms"
    return f"more than {1 - _NEARLY_ALL:.0%} beyond {delivery.lateness_bounds_ms[-1]:g} ms"


def format_bytes_count(count: int) -> str:
    """A number of bytes, in the largest unit that leaves a whole one."""
    size, unit = float(count), 0
    while size >= _KIB and unit < len(_UNITS) - 1:
        size, unit = size / _KIB, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if not unit else f"{size:.1f} {_UNITS[unit]}"


def _ago(heard_ms: int | None) -> str:
    return "never" if heard_ms is None else f"{format_duration(heard_ms)} ago"
