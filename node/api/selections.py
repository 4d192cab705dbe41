"""Receipts in requests: which messages of which leases are meant, and the answer to each."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Any, Final

from hourwheel import errors, limits
from hourwheel.formats.receipt import RECEIPT_DTYPE, Receipt, parse_many
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.v1.consumer_pb2 import ReceiptRange
from node.contracts.broker import Selection

_PARTS: Final = [name for name in RECEIPT_DTYPE.names or () if name not in {"version", "crc"}]


class Selected:
    """The receipts and ranges of one request, and their outcomes.

    Receipts of another cluster, and ranges beyond what their receipt stands for, are INVALID and
    the engine is not asked. Invariant: `valid[i]` is answered at `outcomes[_places[i]]`.
    """

    def __init__(
        self,
        cluster: int,
        receipts: Seq[str],
        ranges: Seq[ReceiptRange],
        *,
        whole_ranges: bool = False,
    ) -> None:
        """Read them.

        Args:
            cluster: the first 4 bytes of our cluster's id.
            receipts: of single messages.
            ranges: of parts of answers.
            whole_ranges: each must be of a whole answer.

        Raises:
            TooManyItems: more than one call may name.
            InvalidReceipt: garbage; nothing is done then.
            InvalidArgument: a part, where whole answers are wanted.
        """
        count = len(receipts) + len(ranges)
        if count > limits.RECEIPT_COUNT_MAX:
            raise errors.TooManyItems(
                f"{count} receipts; at most {limits.RECEIPT_COUNT_MAX} are allowed",
                count=count,
                count_max=limits.RECEIPT_COUNT_MAX,
            )
        self.outcomes: list[Any] = [ReceiptOutcome.INVALID] * count
        """A ReceiptOutcome for each receipt, then for each range: the numbers are the wire's."""
        self.valid: list[Selection] = []
        """What to ask the engine."""
        self._places: list[int] = []
        for place, receipt in enumerate(_read(receipts)):
            self._add(place, cluster, receipt, 0, receipt.count)
        whole = _read([part.receipt for part in ranges])
        for place, (part, receipt) in enumerate(zip(ranges, whole, strict=True), len(receipts)):
            wanted = part.count or receipt.count - part.first
            if whole_ranges and (part.first or wanted != receipt.count):
                raise errors.InvalidArgument(
                    "a range must cover its whole answer", field="ranges", ordinal=place
                )
            self._add(place, cluster, receipt, part.first, wanted)

    def _add(self, place: int, cluster: int, receipt: Receipt, first: int, count: int) -> None:
        """Meant are the messages [first, first + count) of those that `receipt` stands for."""
        end = receipt.index + receipt.count
        is_possible = 0 < count <= receipt.count - first and end <= limits.RECEIVE_MESSAGE_COUNT_MAX
        if receipt.cluster == cluster and is_possible:
            self.valid.append(Selection(receipt, receipt.index + first, count))
            self._places.append(place)

    def fill(self, outcomes: Iterable[ReceiptOutcome]) -> None:
        """Put in the engine's answers to `valid`, in order."""
        for place, outcome in zip(self._places, outcomes, strict=True):
            self.outcomes[place] = outcome


def _read(texts: Seq[str]) -> list[Receipt]:
    if not texts:
        return []
    rows = parse_many(texts)
    return [
        Receipt(*parts) for parts in zip(*(rows[name].tolist() for name in _PARTS), strict=True)
    ]
