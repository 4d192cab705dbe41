"""What the log means for recurrences, by a naive model: see `chaos.log_model`."""

from dataclasses import dataclass, field
from itertools import pairwise

from hourwheel.internal.v1.state_pb2 import RecurrenceChange


@dataclass
class Recurring:
    """One recurrence."""

    version: int
    count_max: int
    after_ms: int
    """The next occurrence shall be later."""
    is_paused: bool = False
    next_index: int = 0
    sequences: list[int] = field(default_factory=list)
    """Of the occurrences since it was defined, but for those that were taken back."""
    own: list[tuple[int, int]] = field(default_factory=list)
    """(sequence, due time) of those of this version."""


@dataclass
class RecurrenceModel:
    """All of them. I10: each index of a version is one message."""

    recurrences: dict[str, Recurring] = field(default_factory=dict)
    taken: dict[tuple[int, int], int] = field(default_factory=dict)
    """(version, index) -> sequence of the message that is this occurrence."""
    due_ms: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Name -> (due time, sequence) of all that were not taken back, since it was made first."""

    every: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """The same with those that were taken back; it begins anew where one was deleted."""

    def change(self, change: RecurrenceChange, offset: int, store_ms: int, gone: set[int]) -> bool:
        """A RECURRENCE record that has cancelled the messages `gone`."""
        what = change.WhichOneof("change") or ""
        name = change.put.name if what == "put" else str(getattr(change, what))
        old = self.recurrences.get(name)
        if change.expected_version != (old.version if old else 0):
            return False
        if old is not None and old.own and old.own[-1][0] in gone:
            old.sequences.pop()
            old.after_ms = store_ms
            self.due_ms[name].pop()
        if what == "put":
            after_ms = max(old.after_ms, store_ms) if old else store_ms
            self.recurrences[name] = Recurring(offset, change.put.count_max, after_ms)
            self.due_ms.setdefault(name, [])
            self.every.setdefault(name, [])
        elif old is None:
            return False
        elif what == "delete_name":
            del self.recurrences[name], self.every[name]
        else:
            old.version, old.is_paused, old.own = offset, what == "pause_name", []
            if what == "resume_name":
                old.after_ms = max(old.after_ms, store_ms)
        return True

    def take(self, version: int, index: int, due_ms: int, sequence: int) -> bool:
        """Whether a message is an occurrence."""
        for name, one in self.recurrences.items():
            if one.version != version:
                continue
            last_ms = one.own[-1][1] if one.own else -1
            if one.is_paused or index != one.next_index or due_ms <= last_ms:
                return False
            assert (version, index) not in self.taken, "an occurrence is published twice"
            self.taken[version, index] = sequence
            self.due_ms[name].append((due_ms, sequence))
            self.every[name].append((due_ms, sequence))
            one.sequences.append(sequence)
            one.own.append((sequence, due_ms))
            one.next_index, one.after_ms = index + 1, due_ms
            return True
        return False

    def check(self, cancelled: set[int]) -> None:
        """Of logs of real masters: no instant of a recurrence comes twice, and none goes back.

        Of those that somebody has cancelled nothing is said.
        """
        for name, found in self.due_ms.items():
            due = [due_ms for due_ms, sequence in found if sequence not in cancelled]
            assert all(a < b for a, b in pairwise(due)), f"{name} has {due}"
