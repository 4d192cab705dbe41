"""Files of a node that are read at the start, and again when they change: certificates and keys."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from hourwheel import errors
from hourwheel.watched_files import WatchedFiles

FILE_BYTES_MAX: Final = 1024 * 1024
"""Of one of them."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


def read_file(key: str, path: str) -> bytes:
    """What is in the file that the configuration's `key` names.

    Raises:
        ConfigError: it cannot be read, or is larger than such a file is.
    """
    try:
        with Path(path).open("rb") as file:
            found = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise errors.ConfigError(
            f"{key} = {path!r}: cannot be read: {error.strerror}", key=key, value=path
        ) from error
    if len(found) > FILE_BYTES_MAX:
        raise errors.ConfigError(
            f"{key} = {path!r}: larger than {FILE_BYTES_MAX} bytes", key=key, value=path
        )
    return found


class NodeFiles(WatchedFiles[T]):
    """Some files whose names do not change; the node's log tells what becomes of changes."""

    def __init__(
        self,
        paths: Sequence[str],
        make: Callable[[], T],
        note: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Read them.

        Args:
            paths: the files.
            make: reads them and makes something of them. Raises ConfigError.
            note: called with whether a change was refused. May be called in another thread.

        Raises:
            ConfigError: of `make`.
        """
        super().__init__(lambda: (make(), paths), _ReportedInLog(note), paths)


class _ReportedInLog:
    """Is a `ChangeReport`."""

    def __init__(self, note: Callable[[bool], None]) -> None:
        self._note = note

    def used(self, paths: Sequence[str], *, is_new: bool) -> None:
        """See ChangeReport."""
        del is_new
        self._note(False)
        _log.info("access_files_read", extra={"files": list(paths)})

    def refused(
        self, paths: Sequence[str], why: str, bug: Exception | None, *, again: bool
    ) -> None:
        """See ChangeReport."""
        if not again:
            _log.error(
                "access_files_refused", extra={"error": why, "files": list(paths)}, exc_info=bug
            )
        self._note(True)
