"""What a run against real nodes saw: requests and their answers. No node, no clock.

A workload writes it, `chaos/checker.py` reads it. A message is known by its **serial**, a
number of the harness's own that stands in its body, so that even a message that was never
acknowledged differs from all others. Times are epoch milliseconds by the harness's clock,
except where a field is said to be the node's.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import CancelOutcome, DedupOutcome, RescheduleOutcome

_SERIAL_BYTES: Final = 8
_FILLER: Final = bytes(number * 167 % 251 for number in range(1_024))
_LENGTHS: Final = 193
_OTHERS: Final = frozenset(
    {"guest_calls", "grant_changes", "deal", "contradiction", "ordered", "key", "limit"}
    | {"changes", "occurrences", "life", "skip", "rank", "sweeps", "resets", "cut off"}
    | {"chances", "redrives", "heard", "pauses", "unwritten_resets"}
)

Verb: TypeAlias = Literal["ack", "nack"]


def body_of(serial: int) -> bytes:
    """The body of a message: its serial, then bytes that follow from it. Up to 200 bytes."""
    at, length = serial % 509, serial * 31 % _LENGTHS
    return serial.to_bytes(_SERIAL_BYTES, "big") + _FILLER[at : at + length]


def serial_of(body: bytes) -> int | None:
    """The serial in a body; None where the body is not one that `body_of` makes."""
    serial = int.from_bytes(body[:_SERIAL_BYTES], "big")
    return serial if body == body_of(serial) else None


class Sent(NamedTuple):
    """A message that was handed to a producer, whatever became of it."""

    topic: str
    due_ms: int
    """The instant that was asked for; for a delay, the earliest instant that it can mean."""
    requested_ms: float = 0.0


class Accepted(NamedTuple):
    """The producer has the answer that the message is safe."""

    message_id: MessageId
    answered_ms: float


class Cancel(NamedTuple):
    """A message was to be taken back."""

    serial: int
    outcome: CancelOutcome | None
    """None: unknown, the call failed."""
    answered_ms: float
    requested_ms: float = 0.0


class Move(NamedTuple):
    """A message was to be moved to another due time; each at most to one."""

    serial: int
    due_ms: int
    """The instant that was asked for."""
    outcome: RescheduleOutcome | None
    """None: unknown, the call failed."""
    answered_ms: float
    requested_ms: float = 0.0


class Sweep(NamedTuple):
    """Messages were moved together, by what they have in common."""

    serials: tuple[int, ...]
    due_ms: int
    """The instant that was asked for."""
    requested_ms: float
    """For the first time."""
    answered_ms: float | None
    """None: unknown, its actor was ended before there was an answer."""


class Unique(NamedTuple):
    """A message with a dedup key was published, and its producer got the outcome."""

    serial: int
    name: str
    """The dedup key."""
    outcome: DedupOutcome
    pending_id: MessageId | None
    """Of the message that had the key; None: PUBLISHED."""


class Delivery(NamedTuple):
    """A message came out."""

    group: str
    topic: str
    serial: int | None
    """None: its body is none of ours."""
    message_id: MessageId
    attempt: int
    epoch: int
    """Epoch of the lease: each start of the node begins another."""
    receive_ms: int
    """The node's clock when it handed the message out."""
    seen_ms: float
    invisible_ms: int
    lease_id: int = 0
    """Number of the lease in its epoch."""


class Finish(NamedTuple):
    """A consumer said that it is done with a message, or gave it back."""

    group: str
    serial: int
    attempt: int
    verb: Verb
    is_ok: bool
    """The node confirmed it; else it may have happened or not."""
    requested_ms: float
    answered_ms: float
    delay_ms: int = 0
    """Of a nack."""
    epoch: int = 0
    """Of the lease, as `lease_id`: see `Delivery`."""
    lease_id: int = 0


class Reset(NamedTuple):
    """A group was to begin anew in the topic that it reads; one reset after the other."""

    group: str
    positions: tuple[int, ...] | None
    """Of each queue of the topic, where it begins by the answer; None: unknown."""
    requested_ms: float
    answered_ms: float


class Chance(NamedTuple):
    """A message came to the group whose dead letters are re-driven, and was done with."""

    serial: int
    attempt: int
    epoch: int
    """Of the lease, as `lease_id`: see `Delivery`."""
    lease_id: int
    receive_ms: int
    """The node's clock when it handed the message out."""
    end: str
    """ack, or reject: it was to be a dead letter."""
    is_ok: bool
    """The node confirmed it; else it may have happened or not."""
    requested_ms: float
    answered_ms: float


class Redrive(NamedTuple):
    """All dead letters of that group were to be given back."""

    redriven_count: int
    """So many were, by the node's answer."""
    requested_ms: float
    answered_ms: float | None
    """None: it may be done, or done in part."""


class Heard(NamedTuple):
    """A message came to a member of the broadcast."""

    member: str
    serial: int
    receive_ms: int
    """The node's clock when it handed the message out."""
    done_ms: float | None
    """When its acknowledgement was confirmed; None: that is not known."""


class Pause(NamedTuple):
    """A group was paused or resumed; one behind the other, and asked for until it was done."""

    is_paused: bool
    requested_ms: float
    """For the first time."""
    answered_ms: float | None
    """None: it may be done; its actor was ended before there was an answer."""


class GuestCall(NamedTuple):
    """The second principal has published, or tried to."""

    requested_ms: float
    answered_ms: float
    is_ok: bool
    """It has the answer that its messages are safe."""


class GrantChange(NamedTuple):
    """The second principal was allowed to publish, or forbidden; nothing of it is under way."""

    is_allowed: bool
    requested_ms: float
    answered_ms: float | None
    """None: unknown, its actor was ended before there was an answer."""


class Change(NamedTuple):
    """A recurrence was changed; asked for again until there was an answer."""

    name: str
    verb: str
    """put, pause, resume or delete."""
    requested_ms: float
    """For the first time."""
    answered_ms: float | None
    """None: unknown, its actor was ended before there was an answer."""


class Occurrence(NamedTuple):
    """An occurrence of a recurrence came out."""

    name: str
    number: int
    """Its number, by its properties."""
    message_id: MessageId
    due_ms: int


class Fault(NamedTuple):
    """What the harness did to the cluster."""

    name: str
    nodes: tuple[str, ...]
    begun_ms: float
    healed_ms: float
    """When it was taken back; the cluster may need longer to be well."""


_EVENTS: Final[dict[str, Callable[..., Any]]] = {
    "guest_calls": GuestCall,
    "grant_changes": GrantChange,
    "changes": Change,
    "chances": Chance,
    "redrives": Redrive,
    "heard": Heard,
    "pauses": Pause,
}
"""Field of a history -> what it holds, of those that hold nothing but numbers and names."""


@dataclass
class History:
    """Everything, in the order in which the harness saw it."""

    sent: dict[int, Sent] = field(default_factory=dict)
    accepted: dict[int, Accepted] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    """Serials of messages whose producer got the answer that nothing was stored."""
    cancels: list[Cancel] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    """Also those without an answer."""
    uniques: list[Unique] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    """Of groups; what was refused is left out."""
    unwritten_resets: list[Reset] = field(default_factory=list)
    """Refused to the last try, because there was no room for the record."""
    groups: dict[str, tuple[str, int]] = field(default_factory=dict)
    """(topic read, most attempts) of each group: one group reads one topic here."""
    faults: list[Fault] = field(default_factory=list)
    guest_calls: list[GuestCall] = field(default_factory=list)
    grant_changes: list[GrantChange] = field(default_factory=list)
    """One behind the other."""
    deals: list[tuple[int, ...]] = field(default_factory=list)
    """Serials of the messages of each transaction."""
    contradictions: list[str] = field(default_factory=list)
    """Transactions that were answered with two outcomes."""
    ordered: set[str] = field(default_factory=set)
    """Groups that get messages of one ordering key one by one."""
    skips: set[tuple[str, int]] = field(default_factory=set)
    """(group, sequence) of each blocked message that a group was asked to skip."""
    keys: dict[int, str] = field(default_factory=dict)
    """Serial -> ordering key."""
    lives: dict[int, int] = field(default_factory=dict)
    """Serial -> how long after the due time that was asked for first a message expires, in
    milliseconds; 0: never."""
    ranks: dict[int, int] = field(default_factory=dict)
    """Serial -> priority, of messages that come in bursts which fall due at once."""
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Group -> (most live leases, most messages a second); 0: any number."""
    changes: list[Change] = field(default_factory=list)
    """Of recurrences; of each one behind the other."""
    occurrences: list[Occurrence] = field(default_factory=list)
    chances: list[Chance] = field(default_factory=list)
    redrives: list[Redrive] = field(default_factory=list)
    """One behind the other; what was refused is left out."""
    heard: list[Heard] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    every_ms: int = 1_000
    """The interval of all recurrences."""
    is_cut_off: bool = False
    """The load was ended while it published: what has not come yet may have been on its way."""
    _last_serial: int = 0

    def next_serial(self) -> int:
        """A number that no message has yet."""
        self._last_serial += 1
        return self._last_serial

    def save(self, path: Path) -> None:
        """Write it as JSON, one event a line."""
        with path.open("w") as file:
            for line in self._lines():
                file.write(f"{json.dumps(line, separators=(',', ':'))}\n")

    def _lines(self) -> Iterator[list[Any]]:
        yield from (["group", name, *entry] for name, entry in self.groups.items())
        yield from (["sent", serial, *sent] for serial, sent in self.sent.items())
        yield from (["accepted", serial, *entry] for serial, entry in self.accepted.items())
        yield from (["refused", serial] for serial in sorted(self.refused))
        for cancel in self.cancels:
            outcome = None if cancel.outcome is None else cancel.outcome.name
            yield ["cancel", *cancel._replace(outcome=None), outcome]
        for move in self.moves:
            reported = None if move.outcome is None else move.outcome.name
            yield ["move", *move._replace(outcome=None), reported]
        for unique in self.uniques:
            yield ["unique", *unique[:2], None, unique.pending_id, unique.outcome.name]
        for name in ("deliveries", "finishes", "faults", "guest_calls", "grant_changes"):
            yield from ([name, *event] for event in getattr(self, name))
        yield from (["ordered", group] for group in sorted(self.ordered))
        yield from (["skip", *one] for one in sorted(self.skips))
        yield from (["key", *one] for one in self.keys.items())
        yield from (["life", *one] for one in self.lives.items())
        yield from (["rank", *one] for one in self.ranks.items())
        yield from (["sweeps", *one] for one in self.sweeps)
        for name in ("resets", "unwritten_resets"):
            yield from ([name, *one] for one in getattr(self, name))
        yield from (["limit", group, *limits] for group, limits in self.limits.items())
        for name in ("changes", "chances", "redrives", "heard", "pauses"):
            yield from ([name, *event] for event in getattr(self, name))
        yield from (["occurrences", *one] for one in self.occurrences)
        yield from (["deal", *serials] for serials in self.deals)
        yield from (["contradiction", text] for text in self.contradictions)
        yield from [["cut off"]] * self.is_cut_off

    def _add(self, kind: str, rest: list[Any]) -> None:
        if kind in _EVENTS:
            getattr(self, kind).append(_EVENTS[kind](*rest))
        elif kind == "deal":
            self.deals.append(tuple(rest))
        elif kind == "ordered":
            self.ordered.update(rest)
        elif kind == "skip":
            self.skips.add((rest[0], rest[1]))
        elif kind in {"key", "life", "rank"}:
            of: dict[str, dict[int, Any]] = {"key": self.keys, "life": self.lives}
            of.get(kind, self.ranks)[rest[0]] = rest[1]
        elif kind == "sweeps":
            self.sweeps.append(Sweep(tuple(rest[0]), *rest[1:]))
        elif kind in {"resets", "unwritten_resets"}:
            positions = None if rest[1] is None else tuple(rest[1])
            getattr(self, kind).append(Reset(rest[0], positions, *rest[2:]))
        elif kind == "limit":
            self.limits[rest[0]] = (rest[1], rest[2])
        elif kind == "occurrences":
            name, index, message_id, due_ms = rest
            self.occurrences.append(Occurrence(name, index, MessageId(*message_id), due_ms))
        elif kind == "cut off":
            self.is_cut_off = True
        else:
            self.contradictions += rest

    @classmethod
    def load(cls, path: Path) -> "History":
        """What `save` wrote."""
        with path.open() as file:
            return cls._of(json.loads(line) for line in file)

    @classmethod
    def _of(cls, lines: Iterable[list[Any]]) -> "History":
        history = cls()
        for kind, *rest in lines:
            if kind in _OTHERS:
                history._add(kind, rest)
            elif kind == "group":
                history.groups[rest[0]] = (rest[1], rest[2])
            elif kind == "sent":
                history.sent[rest[0]] = Sent(*rest[1:])
            elif kind == "accepted":
                history.accepted[rest[0]] = Accepted(MessageId(*rest[1]), rest[2])
            elif kind == "refused":
                history.refused.add(rest[0])
            elif kind == "cancel":
                outcome = None if rest[-1] is None else CancelOutcome[rest[-1]]
                history.cancels.append(Cancel(*rest[:-1])._replace(outcome=outcome))
            elif kind == "move":
                reported = None if rest[-1] is None else RescheduleOutcome[rest[-1]]
                history.moves.append(Move(*rest[:-1])._replace(outcome=reported))
            elif kind == "unique":
                history.uniques.append(_unique_of(rest))
            elif kind == "deliveries":
                delivery = Delivery(*rest)
                message_id = MessageId(*delivery.message_id)
                history.deliveries.append(delivery._replace(message_id=message_id))
            elif kind == "finishes":
                history.finishes.append(Finish(*rest))
            else:
                fault = Fault(*rest)
                history.faults.append(fault._replace(nodes=tuple(fault.nodes)))
        history._last_serial = max(history.sent, default=0)
        return history


def _unique_of(fields: list[Any]) -> Unique:
    serial, name, _, pending_id, outcome = fields
    other = None if pending_id is None else MessageId(*pending_id)
    return Unique(serial, name, DedupOutcome[outcome], other)


class Entry(NamedTuple):
    """A place where the node's directory holds a message."""

    topic: str
    """Of the queue, or of the queue that it is to be released to. Retries have topics, too."""
    sequence: int
    attempt: int


class Kept(NamedTuple):
    """A message that the node's log holds and took for a new one."""

    serial: int | None
    epoch: int
    due_ms: int


class Occurred(NamedTuple):
    """A message of the log that is an occurrence of a recurrence."""

    version: int
    number: int
    due_ms: int


class Begun(NamedTuple):
    """A group began anew in its topic, says the log."""

    positions: dict[int, int]
    """Queue -> where it begins there: the topic's own queues first, in order."""
    stale_up_to: tuple[int, int]
    """(epoch, lease id): leases up to this one are of before."""
    store_ms: int
    """Of the record, by the node's clock."""


class Expired(NamedTuple):
    """A group is done with a message, or with a retry of it, since it has expired."""

    group: str
    sequence: int
    store_ms: int
    """Of the record that says so, by the node's clock."""


@dataclass
class Stored:
    """What a stopped node's directory holds, read once for all: see chaos/stored.py."""

    messages: dict[int, Kept] = field(default_factory=dict)
    """By sequence."""
    queued: list[Entry] = field(default_factory=list)
    """In the consume queues."""
    pending: list[Entry] = field(default_factory=list)
    """In the wheel, cancelled ones not."""
    cancelled: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    """Sequence -> due time, of what was moved to another one than it was published with."""
    deduped: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sequence of each message whose dedup key a pending one had -> (`DedupOutcome`, that one)."""
    occurrences: dict[int, Occurred] = field(default_factory=dict)
    """By sequence; those that were taken back as well."""
    recurred: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Recurrence -> (due time, sequence) of its occurrences that were not taken back."""
    expired: list[Expired] = field(default_factory=list)
    """In log order."""
    expiry_faults: list[str] = field(default_factory=list)
    """What the log and the metadata say of too early, and of acknowledged too late."""
    skipped: set[tuple[str, int]] = field(default_factory=set)
    """(group, sequence) of each message that blocked its key and was skipped."""
    overtaken: list[tuple[int, int]] = field(default_factory=list)
    """(sequence, an earlier one of its key that was not resolved) in ordered groups."""
    begun: dict[str, list[Begun]] = field(default_factory=dict)
    """Group -> its resets, in log order."""
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sequence -> (queue, position) in the topic that it was published to."""
