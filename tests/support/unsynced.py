"""Files that need not be durable: for tests that are about other things and write very much."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def unsynced() -> Iterator[None]:
    """Within this, nothing waits until the disk has it. On a busy disk that would take minutes."""
    with mock.patch.object(os, "fsync"), mock.patch.object(os, "fdatasync"):
        yield
