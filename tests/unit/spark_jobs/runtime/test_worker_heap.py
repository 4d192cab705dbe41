"""What a worker has imported is not looked at by the garbage collector; what comes later is."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from spark_jobs.runtime.worker_heap import settle_heap


class Ring:
    """Is its own friend, and so only the collector frees it."""

    def __init__(self) -> None:
        self.friend = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()  # as tests/conftest.py has it


def test_heap_when_it_is_settled_holds_what_was_there_and_frees_what_comes_later() -> None:
    before = Ring()
    seen_before = weakref.ref(before)
    settle_heap()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    del before
    later = weakref.ref(Ring())
    gc.collect()
    assert later() is None
    assert seen_before() is not None
    settle_heap()
    # Not more; fewer where something of before was freed meanwhile by its last reference.
    assert gc.get_freeze_count() <= frozen
