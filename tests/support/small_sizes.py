"""Sizes of what is local to a node, made so small that short lives go through all of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from storage.queues.consume_queues import ConsumeQueues

_CONSTANTS = {
    "chaos.log_parts.deals.TRANSACTIONS_DECIDED_MAX": 6,
    "storage.views.transactions.TRANSACTIONS_DECIDED_MAX": 6,
    "node.delivery.filter_scan.SLICE_WORK": 1_000,
    "node.delivery.filtered_ranges.POSITIONS_ENOUGH": 8,
    "timewheel.hour_readers._BUFFER_UNITS_MIN": 4,
    "storage.views.sequence_index._CACHE_BLOCKS": 16,
    "storage.views.sequence_index._FLUSH_ENTRIES": 128,
    "storage.views.sequence_index._NEAR_ENTRIES": 256,
    "storage.views.tombstones._GARBAGE_RECORDS_MIN": 2,
}


def _defaults() -> dict[str, int]:
    return ConsumeQueues.open.__kwdefaults__ or {}


def chunk_entries() -> int:
    """Entries of a consume queue's file, now."""
    return _defaults()["chunk_entries"]


@contextmanager
def small_sizes(entries: int = 32) -> Iterator[None]:
    """Within this, a consume queue's file has so many entries, and other things are as small."""
    with mock.patch.dict(_defaults(), chunk_entries=entries):
        patches = [mock.patch(name, value) for name, value in _CONSTANTS.items()]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
