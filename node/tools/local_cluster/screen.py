"""What `hourwheel cluster up` shows: nodes, master, lag, rates. Statuses in, text out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hourwheel.client.cluster_status import ClusterStatus, FollowerStatus, Phase, Role, ShardStatus
from hourwheel.types import NodeId

_SECOND_MS: Final = 1_000
_KIB: Final = 1_024
_COLUMNS: Final = ("node", "process", "address", "", "in sync", "lag", "clock")


@dataclass(frozen=True)
class Seat:
    """One node's place, whether it runs or not."""

    node_id: NodeId
    address: str
    config_file: str
    pid: int = 0
    """0: it does not run, or was started by somebody else."""


@dataclass(frozen=True)
class Seen:
    """The cluster at one moment."""

    monotonic_ms: float
    answers: Mapping[NodeId, ClusterStatus]
    """Node id -> what it said; those that did not answer are not in here."""

    @property
    def best(self) -> ShardStatus | None:
        """The shard as its master says, else as who knows of the latest epoch; None: no answer."""
        shards = [answer.shards[0] for answer in self.answers.values() if answer.shards]
        return max(shards, key=lambda one: (one.may_act, one.epoch), default=None)

    @property
    def master(self) -> str:
        """Id of the node that may act as master; empty: none."""
        return next(
            (
                node
                for node, answer in self.answers.items()
                if answer.shards and answer.shards[0].may_act
            ),
            "",
        )


@dataclass(frozen=True)
class Rates:
    """Messages a second between two moments."""

    published: float = 0.0
    released: float = 0.0


def rates_of(before: Seen | None, now: Seen) -> Rates:
    """How fast it goes; 0 where that is not known, as after a change of master."""
    old, new = None if before is None else before.best, now.best
    if before is None or old is None or new is None or now.monotonic_ms <= before.monotonic_ms:
        return Rates()
    seconds = (now.monotonic_ms - before.monotonic_ms) / _SECOND_MS
    published = max(0, new.published_count - old.published_count)
    return Rates(published / seconds, max(0, new.released_count - old.released_count) / seconds)


def plain_line(now: Seen, rates: Rates) -> str:
    """One line for a log."""
    shard = now.best
    if shard is None:
        return "no node answers"
    return (
        f"master {now.master or 'NONE'}   epoch {shard.epoch}   in sync {','.join(shard.in_sync)}"
        f"   answering {len(now.answers)}   published {rates.published:,.0f}/s"
        f"   released {rates.released:,.0f}/s   pending {shard.pending_count:,}"
    )


def live_view(seats: Sequence[Seat], now: Seen, rates: Rates) -> RenderableType:
    """What a terminal shows."""
    shard = now.best
    followers = {} if shard is None else {one.node_id: one for one in shard.followers}
    table = Table(title="hourwheel cluster", title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for seat in seats:
        table.add_row(*_row(seat, now, shard, followers.get(seat.node_id)))
    return Group(table, *_below(seats, now, rates, shard))


def _row(
    seat: Seat, now: Seen, shard: ShardStatus | None, follower: FollowerStatus | None
) -> list[Text]:
    answer = now.answers.get(seat.node_id)
    is_in_sync = shard is not None and seat.node_id in shard.in_sync
    sync = Text("yes", style="green") if is_in_sync else Text("no", style="yellow")
    lag = clock = "-"
    if follower is not None and follower.phase is Phase.REPLICATING:
        lag = f"{follower.lag_bytes / _KIB:,.1f} KiB"
    if follower is not None and follower.clock_offset_ms is not None:
        clock = f"{follower.clock_offset_ms:+.1f} ms"
    return [
        Text(seat.node_id),
        Text(str(seat.pid) if seat.pid else "-"),
        Text(seat.address),
        _role(answer, follower),
        sync,
        Text(lag),
        Text(clock),
    ]


def _role(answer: ClusterStatus | None, follower: FollowerStatus | None) -> Text:
    if answer is None:
        return Text("does not answer", style="bold red")
    shard = answer.shards[0]
    if shard.may_act:
        return Text("MASTER", style="bold green")
    if shard.role is not Role.FOLLOWER:
        return Text(str(shard.role), style="yellow")
    if follower is not None and follower.phase is not Phase.REPLICATING:
        return Text(f"follower, {follower.phase}", style="yellow")
    return Text("follower")


def _below(
    seats: Sequence[Seat], now: Seen, rates: Rates, shard: ShardStatus | None
) -> list[RenderableType]:
    if shard is None:
        return [Text("  no node answers", style="bold red")]
    who = Text(f"  master {now.master}") if now.master else Text("  NO MASTER", style="bold red")
    who.append(f"   epoch {shard.epoch}   local index {shard.local_index}", style="dim")
    numbers = Text.assemble(
        ("  published ", "dim"),
        (f"{shard.published_count:,}", "bold cyan"),
        (f" ({rates.published:,.0f}/s)   released ", "dim"),
        (f"{shard.released_count:,}", "bold green"),
        (f" ({rates.released:,.0f}/s)   pending ", "dim"),
        (f"{shard.pending_count:,}", "bold magenta"),
    )
    lines: list[RenderableType] = [who, numbers]
    lines += [
        Text(f"  to start {seat.node_id} again: hourwheel node --config {seat.config_file}")
        for seat in seats
        if seat.node_id not in now.answers
    ]
    return lines
