from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.message_id import MessageId, parse
from node.contracts.pending_page import PendingPart, ids_of
from tests.support.units import make_units


def epochs_of(sequences: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return np.where(sequences < 3, 1, 4).astype(np.uint32)


def test_ids_when_messages_are_of_several_epochs() -> None:
    views: Any = SimpleNamespace(epochs_of=epochs_of)
    units = make_units(2, 2, due_ms=1_000)
    part = PendingPart(units, [], ids_of(5, views, units))
    assert [parse(text) for text in part.printable_ids()] == [
        MessageId(5, 1, 2, 1_000),
        MessageId(5, 4, 3, 1_000),
    ]
