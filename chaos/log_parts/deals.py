"""What a shard's log says of transactions, by a naive model: a part of chaos/log_model.py."""

from collections.abc import Container
from dataclasses import dataclass, field

from hourwheel.formats.record_batch import RecordBatch
from hourwheel.formats.transaction_step import Step
from hourwheel.limits import TRANSACTIONS_DECIDED_MAX


@dataclass
class Deal:
    """A transaction."""

    token: tuple[int, int]
    message_count: int
    state: str = "OPEN"
    """Or as hourwheel.outcomes.TransactionState calls it."""
    checks: int = 0
    base_sequence: int = 0
    """Of its first message, when it is committed."""


@dataclass
class Deals:
    """All that are known: those that are open, and those that were decided last."""

    known: dict[int, Deal] = field(default_factory=dict)
    """By the offset of the PREPARE."""
    decided: list[int] = field(default_factory=list)
    """Those that are not open, in the order in which they were decided."""

    outcomes: dict[int, str] = field(default_factory=dict)
    """Of all that were ever decided, also where no node knows it any more."""

    def prepare(self, batch: RecordBatch) -> int:
        """Offset of the record that has opened the transaction: this one, or an earlier one."""
        (token,) = {(row[0], row[1]) for row in batch.rows.tolist()}
        for offset, deal in self.known.items():
            if deal.token == token:
                return offset
        count = sum(batch.rows["message_count"].tolist())
        self.known[batch.header.offset] = Deal(token, count)
        return batch.header.offset

    def transact(self, batch: RecordBatch) -> list[bool]:
        """Which rows have changed something."""
        done = []
        for offset, step, _ in batch.rows.tolist():
            deal = self.known.get(offset)
            done.append(deal is not None and deal.state == "OPEN")
            if deal is None or not done[-1]:
                continue
            if step == Step.CHECK:
                deal.checks += 1
            else:
                self._decide(offset, "EXPIRED" if step == Step.EXPIRE else "ROLLED_BACK")
        return done

    def commit(self, batch: RecordBatch, topics: Container[int]) -> tuple[str, int, int]:
        """What becomes of the messages, as of a request; "new": they are published."""
        header = batch.header
        deal = self.known.get(header.producer_id)
        if deal is None:
            return "unknown transaction", 0, 0
        if deal.state == "COMMITTED":
            return "duplicate", deal.base_sequence, deal.message_count
        if deal.state != "OPEN":
            return "decided", 0, 0
        if any(queue >> 8 not in topics for queue in batch.topic_queue.tolist()):
            return "unknown topic", 0, 0
        deal.base_sequence = header.base_sequence
        self._decide(header.producer_id, "COMMITTED")
        return "new", header.base_sequence, header.count

    def _decide(self, offset: int, state: str) -> None:
        assert offset not in self.outcomes, "decided twice"
        self.known[offset].state = self.outcomes[offset] = state
        self.decided.append(offset)
        if len(self.decided) > TRANSACTIONS_DECIDED_MAX:
            del self.known[self.decided.pop(0)]
