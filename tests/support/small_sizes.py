"""Sizes of what is local to a node, made so small that short lives go through all of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from storage.consume_queues import ConsumeQueues

_CONSTANTS = {
    "timewheel.hour_readers._BUFFER_UNITS_MIN": 4,
    "storage.sequence_index._FLUSH_ENTRIES": 128,
    "storage.tombstones._GARBAGE_RECORDS_MIN": 2,
}


@contextmanager
def small_sizes(chunk_entries: int = 32) -> Iterator[None]:
    """Within this, a consume queue's file has so many entries, and other things are as small."""
    defaults = ConsumeQueues.open.__func__.__kwdefaults__  # type: ignore[attr-defined]
    with mock.patch.dict(defaults, chunk_entries=chunk_entries):
        patches = [mock.patch(name, value) for name, value in _CONSTANTS.items()]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
