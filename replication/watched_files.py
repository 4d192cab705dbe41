"""Files that are read at the start, and read again when they change while the node runs."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from hourwheel import errors

LOOK_S: Final = 2.0
"""How often it is looked whether files have changed."""
FILE_BYTES_MAX: Final = 1024 * 1024
"""Of one of them."""

T = TypeVar("T")
_Seen = tuple[tuple[int, int, int], ...]
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


class WatchedFiles(Generic[T]):
    """What is made of some files, and made anew when one of them changes.

    Files that change one after the other may not fit together for a moment, and may never: then
    what was there stays, the log says so once, and they are tried again at the next look.
    """

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
            note: is told of a change whether it was refused.

        Raises:
            ConfigError: of `make`.
        """
        self._paths, self._make, self._note = tuple(paths), make, note
        self._seen = self._signature()
        self._complaint = ""
        self.value = make()
        """What they say."""
        self.version = 1
        """Grows whenever `value` is another one."""

    def look(self) -> None:
        """Read them again if they have changed."""
        seen = self._signature()
        if seen == self._seen and not self._complaint:
            return
        try:
            value = self._make()
        except errors.ConfigError as error:
            self._refuse(seen, error.message, None)
            return
        except Exception as error:  # noqa: BLE001 - what is in a file must not end the looking
            self._refuse(seen, repr(error), error)
            return
        self._seen, self._complaint = seen, ""
        self.value = value
        self.version += 1
        self._note(False)
        _log.info("access_files_read", extra={"files": list(self._paths)})

    def _refuse(self, seen: _Seen, why: str, bug: Exception | None) -> None:
        if seen != self._seen or why != self._complaint:
            _log.error(
                "access_files_refused",
                extra={"error": why, "files": list(self._paths)},
                exc_info=bug,
            )
        self._seen, self._complaint = seen, why
        self._note(True)

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def _signature(self) -> _Seen:
        """Changes when a file does; a file that is not there is a change, too."""
        return tuple(_stat(path) for path in self._paths)


def _stat(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - follows links, as those of Kubernetes' mounts
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino
